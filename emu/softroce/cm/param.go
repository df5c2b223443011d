package cm

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// Transport is the type of the connected queue pairs.
type Transport uint8

// Transports that can be connected.
const (
	RC Transport = iota
	UC
	XRC // the queue pair of the active side is the XRC initiator
)

// Path is the path to a peer. MTU is 1 (256 bytes) to 5 (4096). LocalAckTimeout is a code;
// it includes twice the packet lifetime, from which the CM derives its timeouts.
type Path struct {
	Local, Remote   netip.Addr // same family, without zone
	FlowLabel       uint32     // 20 bits
	TrafficClass    uint8
	HopLimit        uint8  // 0 for 64
	PKey            uint16 // 0 for 0xFFFF
	MTU             uint8
	Rate            uint8 // 6 bits
	SL              uint8 // 4 bits
	LocalAckTimeout uint8 // 0 for 17, which is 0.5 s and what rdma_cm uses on RoCE
}

// normalize sets defaults, and removes the zone and IPv4 mapping of the addresses.
func (p *Path) normalize() {
	p.Local, p.Remote = plain(p.Local), plain(p.Remote)
	p.HopLimit, p.PKey, p.LocalAckTimeout = cmp.Or(p.HopLimit, 64), cmp.Or(p.PKey, 0xFFFF), cmp.Or(p.LocalAckTimeout, 17)
}

// route returns the route for MADs along p.
func (p *Path) route() Route {
	return Route{p.Local, p.Remote, p.PKey, p.FlowLabel, p.TrafficClass, p.HopLimit}
}

// plain removes the zone and IPv4 mapping of an address, as in a GID.
func plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// unicast reports whether two plain addresses are unicast and of the same family.
func unicast(a, b netip.Addr) bool {
	ok := func(a netip.Addr) bool { return a.IsValid() && !a.IsUnspecified() && !a.IsMulticast() }
	return ok(a) && ok(b) && a.Is4() == b.Is4()
}

// check returns an error if a field is out of range, or the device is no member of the partition.
// op is the name of the operation in the error.
func (p *Path) check(op string, cfg *Config) error {
	switch {
	case !unicast(p.Local, p.Remote):
		return badParam(op, "path must join two unicast addresses of one family, not", [2]netip.Addr{p.Local, p.Remote})
	case p.FlowLabel >= 1<<20:
		return badParam(op, "flow label exceeds 20 bits:", p.FlowLabel)
	case !cfg.memberOf(p.PKey):
		return badParam(op, "no member of partition", p.PKey)
	case p.Rate >= 1<<6:
		return badParam(op, "rate exceeds 6 bits:", p.Rate)
	case p.SL >= 1<<4:
		return badParam(op, "SL exceeds 4 bits:", p.SL)
	case p.LocalAckTimeout >= 1<<5:
		return badParam(op, "local ACK timeout exceeds 5 bits:", p.LocalAckTimeout)
	}
	return nil
}

// ConnectParam has the parameters of Connect.
type ConnectParam struct {
	ServiceID  wire.ServiceID
	Path       Path // an IP service with FlowLabel 0 gets rdma_cm's flow label
	Transport  Transport
	QPN        uint32
	StartPSN   uint32 // first PSN that the peer sends
	RespRes    uint8
	InitDepth  uint8
	RetryCount uint8
	RNRRetry   uint8
	SRQ        bool
	E2EFlow    bool
	SrcPort    uint16 // IP services only: sent in the rdma_cm header
	// PrivateData is up to 92 bytes, 56 for an IP service.
	PrivateData []byte
}

// check validates the parameters.
func (p *ConnectParam) check(cfg *Config) error {
	const op = "connect"
	switch {
	case p.Transport > XRC:
		return badParam(op, "transport is not RC, UC or XRC:", p.Transport)
	case p.Path.MTU < 1 || p.Path.MTU > cfg.MaxMTU:
		return badParam(op, fmt.Sprintf("path MTU code is not in 1..%d:", cfg.MaxMTU), p.Path.MTU)
	case p.RetryCount > 7:
		return badParam(op, "retry count exceeds 7:", p.RetryCount)
	}
	if err := checkQP(op, p.QPN, p.StartPSN, p.RNRRetry); err != nil {
		return err
	}
	return p.Path.check(op, cfg)
}

// checkQP returns an error if a parameter of the local queue pair is out of range; op is the
// operation in the error.
func checkQP(op string, qpn, psn uint32, rnrRetry uint8) error {
	switch {
	case qpn >= 1<<24:
		return badParam(op, "QPN exceeds 24 bits:", qpn)
	case psn >= 1<<24:
		return badParam(op, "starting PSN exceeds 24 bits:", psn)
	case rnrRetry > 7:
		return badParam(op, "RNR retry count exceeds 7:", rnrRetry)
	}
	return nil
}

// AcceptParam has the parameters of Accept.
type AcceptParam struct {
	QPN            uint32
	StartPSN       uint32 // first PSN that the peer sends
	RespRes        uint8
	InitDepth      uint8
	RNRRetry       uint8
	TargetAckDelay uint8 // a code
	SRQ            bool
	E2EFlow        bool
	PrivateData    []byte // up to 196 bytes
}

// check validates the parameters.
func (p *AcceptParam) check() error {
	if p.TargetAckDelay >= 1<<5 {
		return badParam("accept", "target ACK delay exceeds 5 bits:", p.TargetAckDelay)
	}
	return checkQP("accept", p.QPN, p.StartPSN, p.RNRRetry)
}

// SIDRParam has the parameters of SIDRRequest.
type SIDRParam struct {
	ServiceID wire.ServiceID
	Path      Path   // MTU and LocalAckTimeout are not used
	SrcPort   uint16 // IP services only
	// PrivateData is up to 216 bytes, 180 for an IP service.
	PrivateData []byte
}

// SIDRReplyParam has the parameters of SIDRReply.
type SIDRReplyParam struct {
	Status      wire.SIDRStatus
	QPN         uint32
	QKey        uint32 // wire.UDQKey for queue pairs of rdma_cm
	Info        []byte // up to 72 bytes
	PrivateData []byte // up to 136 bytes
}

// fillRequest fills the private data of a REQ or SIDR_REQ: the rdma_cm header if the
// service is an IP port, then the consumer's data.
func fillRequest(field []byte, id wire.ServiceID, path *Path, srcPort uint16, data []byte) error {
	if id.IsIP() {
		h := wire.NewCMAHeader(path.Local, path.Remote, srcPort)
		field = field[copy(field, h.Append(make([]byte, 0, wire.CMAHeaderLen))):]
	}
	return wire.FillField(field, data)
}
