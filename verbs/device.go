package verbs

import (
	"fmt"
	"net/netip"
	"time"
)

// DeviceInfo names a device.
type DeviceInfo struct {
	Name      string
	Provider  string
	Transport Transport
	GUID      uint64
}

// Transport is the wire protocol family of a device.
type Transport int32

// Transports. RoCE counts as InfiniBand: only its link layer differs.
const (
	TransportIB     Transport = 0
	TransportIWARP  Transport = 1
	TransportUnspec Transport = 4
)

// Caps are the capabilities that a device claims. What it claims and then
// refuses is a defect, not a missing feature.
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
	CapCongestion // explicit congestion notification with rate control
	CapAutoMigration
	CapCredits // end-to-end flow control
	CapZeroBased
	CapResizeCQ
	// CapRD says that queue pairs of type UD are reliable: what one sends to another
	// arrives exactly once and in order, and they have the operations of RC, each with
	// the address of its peer. Verbs have no type for that: InfiniBand's RD needs
	// contexts of its own, and no device has them.
	CapRD
)

// Has reports whether all of need is claimed.
func (c Caps) Has(need Caps) bool { return c&need == need }

// DeviceAttr is what a device is able to do, and its limits.
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
	MaxQPRdAtomic   uint8 // incoming reads and atomics outstanding a QP
	MaxQPInitAtomic uint8 // outgoing ones
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
	// BadPKeys and QKeyViolations count packets refused for their keys.
	BadPKeys       uint32
	QKeyViolations uint32
	// Rate is the signalling rate in bits a second; 0 if unknown.
	RateBps uint64
}

// MTU is a path MTU as verbs count them: the payload a packet carries.
type MTU uint32

// The five MTUs.
const (
	MTU256 MTU = iota + 1
	MTU512
	MTU1024
	MTU2048
	MTU4096
)

// Bytes is the payload size; 0 if m is none of the five.
func (m MTU) Bytes() int {
	if m < MTU256 || m > MTU4096 {
		return 0
	}
	return 128 << m
}

// String prints the size in bytes.
func (m MTU) String() string {
	if n := m.Bytes(); n != 0 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("MTU(%d)", uint32(m))
}

// MTUFor returns the largest MTU whose payload is at most n bytes; 0 if even
// 256 is too much.
func MTUFor(n int) MTU {
	for m := MTU4096; m >= MTU256; m-- {
		if m.Bytes() <= n {
			return m
		}
	}
	return 0
}

// GID is a global identifier: an IPv6 address, or an IPv4 address mapped.
type GID [16]byte

// GIDFrom returns the GID of an IP address.
func GIDFrom(a netip.Addr) GID { return a.As16() }

// Addr returns the IP address a GID stands for; a mapped IPv4 address as IPv4.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// String prints the address.
func (g GID) String() string { return g.Addr().String() }

// GIDType says which protocol an entry of the GID table belongs to.
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

// GRH is the part of an address that crosses routers.
type GRH struct {
	DGID         GID
	FlowLabel    uint32
	SGIDIndex    uint8
	HopLimit     uint8
	TrafficClass uint8
}

// AHAttr addresses a remote port.
type AHAttr struct {
	GRH        GRH
	SL         uint8
	StaticRate uint8
	Port       uint8
}

// AH is an address handle: where a datagram goes.
type AH interface {
	Attr() AHAttr
	Close() error
}

// GRHLen is the size of the area that precedes the payload in every UD receive
// buffer.
const GRHLen = 40

// InitAHFromWC returns the address to answer a received datagram to, from its
// completion and the first GRHLen bytes of its buffer. The area holds an IPv6
// header, or an IPv4 header in its last twenty bytes. Nothing is said of the
// first twenty then: they may look like IPv6.
func InitAHFromWC(port uint8, sgidIndex uint8, wc *WC, area []byte) (AHAttr, error) {
	if wc.Flags&WCWithGRH == 0 || len(area) < GRHLen {
		return AHAttr{}, &OpError{Op: "init_ah_from_wc", Err: fmt.Errorf("%w: no global header in %d bytes", ErrInvalid, len(area))}
	}
	a := AHAttr{Port: port, SL: wc.SL, GRH: GRH{SGIDIndex: sgidIndex, HopLimit: 64}}
	switch {
	case area[0]>>4 == 6 && !isIPv4(area[20:GRHLen]):
		a.GRH.DGID = GID(area[8:24])
		a.GRH.FlowLabel = uint32(area[1]&0xf)<<16 | uint32(area[2])<<8 | uint32(area[3])
		a.GRH.TrafficClass = area[0]<<4 | area[1]>>4
	case area[20]>>4 == 4:
		a.GRH.DGID = GIDFrom(netip.AddrFrom4([4]byte(area[32:36])))
		a.GRH.TrafficClass = area[21]
	default:
		return AHAttr{}, &OpError{Op: "init_ah_from_wc", Err: fmt.Errorf("%w: neither IPv4 nor IPv6", ErrInvalid)}
	}
	return a, nil
}

// isIPv4 reports whether h is a whole IPv4 header of a UDP datagram, down to its
// checksum.
func isIPv4(h []byte) bool {
	var sum uint32
	for i := 0; i < len(h); i += 2 {
		sum += uint32(h[i])<<8 | uint32(h[i+1])
	}
	return h[0] == 0x45 && h[9] == 17 && sum&0xffff+sum>>16 == 0xffff
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

// AsyncEvent is something a device reports of its own accord. The field that
// belongs to the type is set, the others are zero.
type AsyncEvent struct {
	Type AsyncEventType
	QP   QP
	CQ   CQ
	SRQ  SRQ
	Port uint8
}

// CompChannel delivers completion events.
type CompChannel interface {
	// Wait returns the next CQ that was armed and then saw a completion, or
	// ErrTimeout. Each event disarms its CQ.
	Wait(timeout time.Duration) (CQ, error)
	Close() error
}
