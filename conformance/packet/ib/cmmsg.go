package ib

import (
	"net/netip"
	"reflect"
)

// REQ requests a connection.
type REQ struct {
	_               struct{}   `size:"232"`
	LocalCommID     *uint32    `at:"0,32" fmt:"%#08x"`
	ServiceID       *uint64    `at:"8,64" fmt:"%#x"`
	LocalCAGUID     *uint64    `at:"16,64" fmt:"%#x"`
	QKey            *uint32    `at:"28,32" fmt:"%#x"`
	QPN             *uint32    `at:"32,24" fmt:"%#x"`
	RespResources   *uint8     `at:"35,8" def:"1"`
	LocalEECN       *uint32    `at:"36,24" fmt:"%#x"`
	InitiatorDepth  *uint8     `at:"39,8" def:"1"`
	RemoteEECN      *uint32    `at:"40,24" fmt:"%#x"`
	RemoteTimeout   *uint8     `at:"43,5" def:"20"` // 4.096 µs << n
	Transport       *uint8     `at:"43.5,2"`        // 0 RC, 1 UC, 2 RD, 3 see ExtTransport
	FlowControl     *bool      `at:"43.7,1"`
	StartingPSN     *PSN       `at:"44,24"`
	LocalTimeout    *uint8     `at:"47,5" def:"20"`
	RetryCount      *uint8     `at:"47.5,3" def:"7"`
	PKey            *uint16    `at:"48,16" def:"0xffff" fmt:"%#04x"`
	PathMTU         *uint8     `at:"50,4" def:"3"` // 1 is 256 bytes, 5 is 4096
	RDCExists       *bool      `at:"50.4,1"`
	RNRRetryCount   *uint8     `at:"50.5,3" def:"7"`
	MaxCMRetries    *uint8     `at:"51,4" def:"15"`
	SRQ             *bool      `at:"51.4,1"`
	ExtTransport    *uint8     `at:"51.5,3"` // 1 is XRC
	LocalLID        *uint16    `at:"52,16" def:"0xffff" fmt:"%#04x"`
	RemoteLID       *uint16    `at:"54,16" def:"0xffff" fmt:"%#04x"`
	LocalGID        netip.Addr `at:"56,128"`
	RemoteGID       netip.Addr `at:"72,128"`
	FlowLabel       *uint32    `at:"88,20" fmt:"%#x"`
	PacketRate      *uint8     `at:"91.2,6"`
	TrafficClass    *uint8     `at:"92,8" fmt:"%#02x"`
	HopLimit        *uint8     `at:"93,8" def:"64"`
	SL              *uint8     `at:"94,4"`
	SubnetLocal     *bool      `at:"94.4,1"`
	AckTimeout      *uint8     `at:"95,5" def:"17"`
	AltLocalLID     *uint16    `at:"96,16" fmt:"%#04x"`
	AltRemoteLID    *uint16    `at:"98,16" fmt:"%#04x"`
	AltLocalGID     netip.Addr `at:"100,128"`
	AltRemoteGID    netip.Addr `at:"116,128"`
	AltFlowLabel    *uint32    `at:"132,20" fmt:"%#x"`
	AltPacketRate   *uint8     `at:"135.2,6"`
	AltTrafficClass *uint8     `at:"136,8" fmt:"%#02x"`
	AltHopLimit     *uint8     `at:"137,8"`
	AltSL           *uint8     `at:"138,4"`
	AltSubnetLocal  *bool      `at:"138.4,1"`
	AltAckTimeout   *uint8     `at:"139,5"`
	Private         []byte     `at:"140,736"`
}

// MRA asks the peer to wait longer for the response to a message.
type MRA struct {
	_              struct{} `size:"232"`
	LocalCommID    *uint32  `at:"0,32" fmt:"%#08x"`
	RemoteCommID   *uint32  `at:"4,32" fmt:"%#08x"`
	About          *uint8   `at:"8,2"`
	ServiceTimeout *uint8   `at:"9,5" def:"24"`
	Private        []byte   `at:"10,1776"`
}

// REJ rejects or aborts a connection.
type REJ struct {
	_            struct{} `size:"232"`
	LocalCommID  *uint32  `at:"0,32" fmt:"%#08x"`
	RemoteCommID *uint32  `at:"4,32" fmt:"%#08x"`
	About        *uint8   `at:"8,2"`
	InfoLen      *uint8   `at:"9,7"`
	Reason       *Reason  `at:"10,16"`
	Info         []byte   `at:"12,576"`
	Private      []byte   `at:"84,1184"`
}

// REP accepts a connection.
type REP struct {
	_              struct{} `size:"232"`
	LocalCommID    *uint32  `at:"0,32" fmt:"%#08x"`
	RemoteCommID   *uint32  `at:"4,32" fmt:"%#08x"`
	QKey           *uint32  `at:"8,32" fmt:"%#x"`
	QPN            *uint32  `at:"12,24" fmt:"%#x"`
	EECN           *uint32  `at:"16,24" fmt:"%#x"`
	StartingPSN    *PSN     `at:"20,24"`
	RespResources  *uint8   `at:"24,8" def:"1"`
	InitiatorDepth *uint8   `at:"25,8" def:"1"`
	TargetAckDelay *uint8   `at:"26,5" def:"15"`
	Failover       *uint8   `at:"26.5,2"`
	FlowControl    *bool    `at:"26.7,1"`
	RNRRetryCount  *uint8   `at:"27,3" def:"7"`
	SRQ            *bool    `at:"27.3,1"`
	LocalCAGUID    *uint64  `at:"28,64" fmt:"%#x"`
	Private        []byte   `at:"36,1568"`
}

// RTU confirms that a connection is ready to use.
type RTU struct {
	_            struct{} `size:"232"`
	LocalCommID  *uint32  `at:"0,32" fmt:"%#08x"`
	RemoteCommID *uint32  `at:"4,32" fmt:"%#08x"`
	Private      []byte   `at:"8,1792"`
}

// DREQ requests disconnection.
type DREQ struct {
	_            struct{} `size:"232"`
	LocalCommID  *uint32  `at:"0,32" fmt:"%#08x"`
	RemoteCommID *uint32  `at:"4,32" fmt:"%#08x"`
	RemoteQPN    *uint32  `at:"8,24" fmt:"%#x"`
	Private      []byte   `at:"12,1760"`
}

// DREP confirms a DREQ. It has the layout of an RTU.
type DREP RTU

// SIDRREQ requests the QPN of a datagram service.
type SIDRREQ struct {
	_         struct{} `size:"232"`
	RequestID *uint32  `at:"0,32" fmt:"%#08x"`
	PKey      *uint16  `at:"4,16" def:"0xffff" fmt:"%#04x"`
	ServiceID *uint64  `at:"8,64" fmt:"%#x"`
	Private   []byte   `at:"16,1728"`
}

// SIDRREP answers a SIDR_REQ.
type SIDRREP struct {
	_         struct{} `size:"232"`
	RequestID *uint32  `at:"0,32" fmt:"%#08x"`
	Status    *uint8   `at:"4,8"`
	InfoLen   *uint8   `at:"5,8"`
	QPN       *uint32  `at:"8,24" fmt:"%#x"`
	ServiceID *uint64  `at:"12,64" fmt:"%#x"`
	QKey      *uint32  `at:"20,32" fmt:"%#x"`
	Info      []byte   `at:"24,576"`
	Private   []byte   `at:"96,1088"`
}

// LAP requests an alternate path. Its fields after the communication IDs are not parsed.
type LAP struct {
	_            struct{} `size:"232"`
	LocalCommID  *uint32  `at:"0,32" fmt:"%#08x"`
	RemoteCommID *uint32  `at:"4,32" fmt:"%#08x"`
	Rest         []byte   `at:"8,1792"`
}

// APR answers a LAP.
type APR struct {
	_            struct{} `size:"232"`
	LocalCommID  *uint32  `at:"0,32" fmt:"%#08x"`
	RemoteCommID *uint32  `at:"4,32" fmt:"%#08x"`
	InfoLen      *uint8   `at:"8,8"`
	Status       *uint8   `at:"9,8"`
	Info         []byte   `at:"12,576"`
	Private      []byte   `at:"84,1184"`
}

// WithCommIDs returns a copy of m with these communication IDs; false if its kind lacks one of
// them.
func WithCommIDs(m Message, local, remote uint32) (Message, bool) {
	changed := reflect.New(reflect.TypeOf(m)).Elem()
	changed.Set(reflect.ValueOf(m))
	l, r := changed.FieldByName("LocalCommID"), changed.FieldByName("RemoteCommID")
	if !l.IsValid() || !r.IsValid() {
		return m, false
	}
	l.Set(reflect.ValueOf(&local))
	r.Set(reflect.ValueOf(&remote))
	return changed.Interface().(Message), true
}
