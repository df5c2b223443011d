package verbs

import (
	"net/netip"
	"time"
)

// PortSpace is the rdma_cm port space (RDMA_PS_*) that a port number belongs to.
type PortSpace uint16

// Port spaces.
const (
	PortSpaceTCP PortSpace = 0x0106 // connected: RC
	PortSpaceUDP PortSpace = 0x0111 // datagrams: UD
	PortSpaceIB  PortSpace = 0x013f
)

// ConnParam are the parameters of a connection, as in struct rdma_conn_param.
type ConnParam struct {
	// PrivateData is sent with the CM message. InfiniBand allows 56 bytes in a
	// request and 196 in a reply and pads with zeros; iWARP allows 508, or 512 with
	// a peer of MPA revision 1, and preserves the length.
	PrivateData []byte
	// ResponderResources and InitiatorDepth limit the outstanding RDMA reads and
	// atomics that this side accepts and issues: IRD and ORD in iWARP.
	ResponderResources uint8
	InitiatorDepth     uint8
	// RetryCount, RNRRetryCount and FlowControl apply to InfiniBand only. iWARP
	// ignores them: TCP retransmits, and there is no RNR NAK.
	RetryCount    uint8
	RNRRetryCount uint8
	FlowControl   bool
}

// CM is the connection manager of a device.
type CM interface {
	// Listen accepts connection requests to addr. The CM chooses the port if it is
	// 0, and listens on all addresses of the device if addr is unspecified.
	Listen(addr netip.AddrPort, space PortSpace, backlog int) (Listener, error)
	// Connect connects qp, which must be in RESET or INIT, to the listener at addr
	// and moves it to RTS. It returns a *RejectError if the peer rejects.
	Connect(qp QP, addr netip.AddrPort, param ConnParam, timeout time.Duration) (Conn, error)
	// Resolve asks the listener at addr for its UD QP, with an SIDR request.
	Resolve(addr netip.AddrPort, private []byte, timeout time.Duration) (DatagramPeer, error)
}

// Listener receives connection requests.
type Listener interface {
	Addr() netip.AddrPort
	// GetRequest returns the next request, or ErrTimeout.
	GetRequest(timeout time.Duration) (ConnRequest, error)
	Close() error
}

// ConnRequest is a received connection request. Call Accept or Reject once.
type ConnRequest interface {
	// Remote returns the address of the connecting peer.
	Remote() netip.AddrPort
	// Param returns the parameters and private data of the request.
	Param() ConnParam
	// Accept connects qp, which must be in RESET or INIT, and waits for the peer's
	// RTU; iWARP has none. For PortSpaceUDP it replies with the QPN and Q_Key of qp
	// and returns a nil Conn.
	Accept(qp QP, param ConnParam, timeout time.Duration) (Conn, error)
	Reject(private []byte) error
}

// Conn is a connection made by the CM.
type Conn interface {
	// Param returns the parameters that the peer sent in its request or reply.
	Param() ConnParam
	Remote() netip.AddrPort
	// Disconnect ends the connection and moves its QP to the error state: with
	// InfiniBand before it returns; with iWARP after the posted work requests have
	// completed and the peer has closed its side.
	Disconnect() error
	// WaitDisconnect waits until a side has ended the connection, or returns ErrTimeout.
	WaitDisconnect(timeout time.Duration) error
}

// DatagramPeer is the address of a UD QP that Resolve found.
type DatagramPeer struct {
	AH          AHAttr
	QPN         QPN
	QKey        uint32
	PrivateData []byte
}
