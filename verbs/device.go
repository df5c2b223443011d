package verbs

import (
	"fmt"
	"net/netip"
	"time"
)

// DeviceInfo identifies a device.
type DeviceInfo struct {
	Name      string
	Provider  string
	Transport Transport
	GUID      uint64
}

// Transport is the transport type of a device.
type Transport int32

// Transport types. RoCE devices are TransportIB, as in libibverbs.
const (
	TransportIB     Transport = 0
	TransportIWARP  Transport = 1
	TransportUnspec Transport = 4
)

// Caps are the capabilities that a device advertises. Rejecting an operation that
// it advertises is a defect of the device.
type Caps uint64

// Capabilities.
const (
	CapRC Caps = 1 << iota
	CapUC
	CapUD
	CapXRC
	CapSRQ
	CapMWType1
	CapMWType2
	CapAtomics
	CapMulticast
	CapSendInv
	CapLocalInv
	CapFlush
	CapAtomicWrite
	CapCM
	CapCongestion // ECN with rate control
	CapAutoMigration
	CapCredits // end-to-end flow control
	CapZeroBased
	CapResizeCQ
	// CapRD: UD QPs are reliable. They deliver messages exactly once and in order,
	// and support the operations of RC, addressed by work request. libibverbs has no
	// QP type for reliable datagrams.
	CapRD
)

// Has reports whether c includes all capabilities in need.
func (c Caps) Has(need Caps) bool { return c&need == need }

// DeviceAttr are the capabilities and limits of a device.
type DeviceAttr struct {
	FirmwareVersion string
	VendorID        uint32
	VendorPartID    uint32
	NodeGUID        uint64
	Caps            Caps
	MaxQP           int
	MaxQPWR         int
	MaxSGE          int
	MaxSGERead      int
	MaxInline       int
	MaxCQ           int
	MaxCQE          int
	MaxMR           int
	MaxMRSize       uint64
	MaxMW           int
	MaxPD           int
	MaxAH           int
	MaxSRQ          int
	MaxSRQWR        int
	MaxSRQSGE       int
	MaxXRCD         int
	MaxQPRdAtomic   uint8 // max_qp_rd_atom: outstanding reads and atomics per QP as responder
	MaxQPInitAtomic uint8 // max_qp_init_rd_atom: the same as requester
	MaxMcastGroups  int
	MaxMcastQPs     int
	MaxPKeys        int
	LocalAckDelay   uint8
	Ports           uint8
}

// PortState is the logical state of a port.
type PortState uint32

// Port states.
const (
	PortNop PortState = iota
	PortDown
	PortInit
	PortArmed
	PortActive
)

// PortAttr describes a port.
type PortAttr struct {
	State     PortState
	MaxMTU    MTU
	ActiveMTU MTU
	GIDs      int
	PKeys     int
	MaxMsg    uint32
	// BadPKeys and QKeyViolations count packets dropped for a wrong key.
	BadPKeys       uint32
	QKeyViolations uint32
	// RateBps is the signalling rate in bits per second; 0 if unknown.
	RateBps uint64
}

// MTU is a path MTU: the maximum payload of a packet.
type MTU uint32

// Path MTUs.
const (
	MTU256 MTU = iota + 1
	MTU512
	MTU1024
	MTU2048
	MTU4096
)

// Bytes returns the MTU in bytes, or 0 if m is not one of the constants.
func (m MTU) Bytes() int {
	if m < MTU256 || m > MTU4096 {
		return 0
	}
	return 256 << (m - MTU256)
}

// String returns the MTU in bytes as text: "1024".
func (m MTU) String() string {
	if n := m.Bytes(); n != 0 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("MTU(%d)", uint32(m))
}

// MTUFor returns the largest path MTU of at most n bytes, or 0 if n is less than 256.
func MTUFor(n int) MTU {
	for m := MTU4096; m >= MTU256; m-- {
		if m.Bytes() <= n {
			return m
		}
	}
	return 0
}

// AckTimeout returns the time of a code of QPAttr.Timeout: 4.096 µs · 2^code. Code 0, for which it is not
// meant, is infinite.
func AckTimeout(code uint8) time.Duration { return 4096 * time.Nanosecond << code }

// AckTimeoutFor returns the smallest code of QPAttr.Timeout whose time is at least d, or the largest, 31.
func AckTimeoutFor(d time.Duration) (code uint8) {
	for code = 1; code < 31 && AckTimeout(code) < d; code++ {
	}
	return code
}

// GID is a global identifier: an IPv6 or IPv4-mapped IPv6 address.
type GID [16]byte

// GIDFrom returns the GID of an IP address.
func GIDFrom(a netip.Addr) GID { return a.As16() }

// Addr returns the IP address of a GID, unmapped if it is IPv4.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// String returns the IP address.
func (g GID) String() string { return g.Addr().String() }

// GIDType is the protocol of a GID table entry.
type GIDType uint32

// GID types.
const (
	GIDTypeIB GIDType = iota
	GIDTypeRoCEv1
	GIDTypeRoCEv2
)

// GIDEntry is an entry of a port's GID table.
type GIDEntry struct {
	GID   GID
	Index int
	Type  GIDType
}

// GRH are the attributes of the global routing header.
type GRH struct {
	DGID         GID
	FlowLabel    uint32
	SGIDIndex    uint8
	HopLimit     uint8
	TrafficClass uint8
}

// AHAttr is the address vector of a remote port.
type AHAttr struct {
	GRH        GRH
	SL         uint8
	StaticRate uint8
	Port       uint8
}

// AH is an address handle: the destination of UD sends.
type AH interface {
	Attr() AHAttr
	Close() error
}

// GRHLen is the size of the GRH that precedes the payload in a UD receive buffer.
const GRHLen = 40

// InitAHFromWC returns the address vector for a reply to a received datagram, from
// its completion and the first GRHLen bytes of its buffer. For RoCE these hold an
// IPv6 header, or 20 undefined bytes and an IPv4 header.
func InitAHFromWC(port uint8, sgidIndex uint8, wc *WC, grh []byte) (AHAttr, error) {
	if wc.Flags&WCWithGRH == 0 || len(grh) < GRHLen {
		return AHAttr{}, &OpError{Op: "init_ah_from_wc", Err: fmt.Errorf("%w: no GRH in %d bytes", ErrInvalid, len(grh))}
	}
	const defaultHopLimit = 64 // not that of the received datagram
	a := AHAttr{Port: port, SL: wc.SL, GRH: GRH{SGIDIndex: sgidIndex, HopLimit: defaultHopLimit}}
	switch {
	case grh[0]>>4 == 6 && !isIPv4UDP(grh[20:GRHLen]): // the undefined bytes before IPv4 may begin with 6
		a.GRH.DGID = GID(grh[8:24])
		a.GRH.FlowLabel = uint32(grh[1]&0xf)<<16 | uint32(grh[2])<<8 | uint32(grh[3])
		a.GRH.TrafficClass = grh[0]<<4 | grh[1]>>4
	case grh[20]>>4 == 4:
		a.GRH.DGID = GIDFrom(netip.AddrFrom4([4]byte(grh[32:36])))
		a.GRH.TrafficClass = grh[21]
	default:
		return AHAttr{}, &OpError{Op: "init_ah_from_wc", Err: fmt.Errorf("%w: neither IPv4 nor IPv6", ErrInvalid)}
	}
	return a, nil
}

// isIPv4UDP reports whether h is an IPv4 header for UDP, without options, with a valid checksum.
func isIPv4UDP(h []byte) bool {
	var sum uint32
	for i := 0; i < len(h); i += 2 {
		sum += uint32(h[i])<<8 | uint32(h[i+1])
	}
	const version4Header20, protocolUDP = 0x45, 17 // 0x45: version 4, and a header of five 32-bit words
	sum = sum&0xffff + sum>>16                     // ones' complement: 0xffff for a valid header
	return h[0] == version4Header20 && h[9] == protocolUDP && sum == 0xffff
}

// AsyncEventType is the kind of an asynchronous event.
type AsyncEventType uint32

// Asynchronous events.
const (
	EventCQErr AsyncEventType = iota
	EventQPFatal
	EventQPReqErr
	EventQPAccessErr
	EventCommEst
	EventSQDrained
	EventPathMig
	EventPathMigErr
	EventDeviceFatal
	EventPortActive
	EventPortErr
	EventLIDChange
	EventPKeyChange
	EventSMChange
	EventSRQErr
	EventSRQLimitReached
	EventQPLastWQEReached
	EventClientReregister
	EventGIDChange
)

// AsyncEvent is an asynchronous event. Its type determines which of QP, CQ, SRQ and Port is set.
type AsyncEvent struct {
	Type AsyncEventType
	QP   QP
	CQ   CQ
	SRQ  SRQ
	Port uint8
}

// CompChannel delivers completion events.
type CompChannel interface {
	// Wait returns the CQ of the next completion event, or ErrTimeout. Each event
	// needs another ReqNotify.
	Wait(timeout time.Duration) (CQ, error)
	Close() error
}
