package bench

import (
	"net/netip"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet"
	"github.com/fabrictest/fabrictest/conformance/wire"
)

// isTCPTo returns a filter for TCP packets to these addresses: others may use the
// same link.
func isTCPTo(addrs []netip.Addr) func([]byte) bool {
	return func(ip []byte) bool {
		h, _, err := packet.ParseIPHeader(ip)
		return err == nil && *h.Protocol == packet.ProtocolTCP && slices.Contains(addrs, h.Dst)
	}
}

// segmentWire is the wire of a user-space TCP, with the times of the case. It is
// read concurrently with the case.
type segmentWire struct {
	openWire
	w *realWorld
}

// Recv implements conformance.Wire.
func (x *segmentWire) Recv(timeout time.Duration) (conformance.Frame, error) {
	f, err := x.openWire.Recv(timeout)
	f.At -= x.w.epoch.Sub(x.Epoch())
	return f, err
}

// timestampsLen is the length of the TCP timestamps option, which most hosts use.
// The user-space TCP does not, and subtracts it from the MSS of a smaller MTU, to
// get payloads of the usual size.
const timestampsLen = 12

// newTCPHost returns a user-space TCP for one case, on a path of this MTU over a
// link that may carry more. The record has all of its packets.
func newTCPHost(w *realWorld, link openWire, record *conformance.Record, at netip.Addr, cableMTU, mtu int) *wire.TCPHost {
	link.Discard()
	cfg := wire.TCPConfig{Wire: record.RecordWire(w, &segmentWire{link, w}), Addr: at, MTU: cableMTU, OnWait: w.startWait, Done: w.stop}
	if mtu < cableMTU {
		cfg.MSS = mtu - 20 - 20 - timestampsLen
		if at.Is6() {
			cfg.MSS -= 20
		}
	}
	return wire.NewTCPHost(cfg)
}
