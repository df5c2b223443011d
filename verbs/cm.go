package verbs

import (
	"net/netip"
	"time"
)

// PortSpace tells the services of one address apart, as rdma_cm does.
type PortSpace uint16

// Port spaces.
const (
	PortSpaceTCP PortSpace = 0x0106 // connected: RC
	PortSpaceUDP PortSpace = 0x0111 // datagrams: UD
	PortSpaceIB  PortSpace = 0x013f
)

// ConnParam is what the two ends of a connection agree on.
type ConnParam struct {
	// PrivateData travels with the message. InfiniBand's CM has room for 56 bytes
	// with a request and 196 with a reply, and fills up what is shorter with
	// zeros; iWARP has room for 508, or 512 with a peer of MPA revision 1, and
	// keeps the length.
	PrivateData []byte
	// ResponderResources and InitiatorDepth are how many reads and atomics we
	// accept and issue at a time: iWARP's IRD and ORD.
	ResponderResources uint8
	InitiatorDepth     uint8
	// RetryCount, RNRRetryCount and FlowControl are InfiniBand's. Over iWARP they
	// mean nothing: TCP repeats what was lost, and nobody waits for a receive.
	RetryCount    uint8
	RNRRetryCount uint8
	FlowControl   bool
}

// CM makes and ends connections.
type CM interface {
	// Listen waits for requests to addr. Port 0 is chosen by the CM, and an
	// unspecified address means all that the device has.
	Listen(addr netip.AddrPort, space PortSpace, backlog int) (Listener, error)
	// Connect connects qp, which must be in RESET or INIT, to the listener at
	// addr, and leaves it ready to send. Who is refused gets a *RejectError.
	Connect(qp QP, addr netip.AddrPort, param ConnParam, timeout time.Duration) (Conn, error)
	// Resolve asks the listener at addr for its datagram QP.
	Resolve(addr netip.AddrPort, private []byte, timeout time.Duration) (DatagramPeer, error)
}

// Listener receives connection requests.
type Listener interface {
	Addr() netip.AddrPort
	// GetRequest returns the next request, or ErrTimeout.
	GetRequest(timeout time.Duration) (ConnRequest, error)
	Close() error
}

// ConnRequest is a request that waits for an answer. Answer it once.
type ConnRequest interface {
	// Remote is the requester's address.
	Remote() netip.AddrPort
	// Param is what the requester asked for, its private data included.
	Param() ConnParam
	// Accept connects qp, which must be in RESET or INIT, and waits until the
	// peer has confirmed, where it does: in iWARP's client-server model nobody
	// confirms. For PortSpaceUDP it answers with qp's number and key and returns a
	// nil Conn.
	Accept(qp QP, param ConnParam, timeout time.Duration) (Conn, error)
	Reject(private []byte) error
}

// Conn is a connection made by the CM.
type Conn interface {
	// Param is what the peer granted or asked for.
	Param() ConnParam
	Remote() netip.AddrPort
	// Disconnect ends the connection and puts its QP into the error state. Over
	// InfiniBand that is so when it returns; iWARP first carries out what was
	// posted, and the QP is in that state when the peer has closed its side too.
	Disconnect() error
	// WaitDisconnect returns when the connection has ended, by whichever side and
	// in whatever way, or ErrTimeout.
	WaitDisconnect(timeout time.Duration) error
}

// DatagramPeer is where a resolved service receives datagrams.
type DatagramPeer struct {
	AH          AHAttr
	QPN         QPN
	QKey        uint32
	PrivateData []byte
}
