package bench

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/etherwire"
	"github.com/fabrictest/fabrictest/conformance/packet"
	"github.com/fabrictest/fabrictest/conformance/tcpwire"
)

// openSegments opens the judge's end of the cable for a TCP that is made by hand.
func (d *Device) openSegments() error {
	addrs, err := d.ownPeers()
	if err != nil {
		return err
	}
	mac, err := net.ParseMAC(d.id.MAC)
	if err != nil {
		return fmt.Errorf("the Ethernet address of the device's interface %q, as the agent tells it: %w", d.id.NetDevice, err)
	}
	w, err := etherwire.Open(etherwire.Config{Interface: d.opt.Interface, Device: mac, Addrs: addrs, Keep: tcpTo(addrs)})
	if err != nil {
		return err
	}
	d.wire = w
	return nil
}

// tcpTo says which packets are of TCP and to one of these addresses: the agent, and others,
// may talk over the same cable.
func tcpTo(addrs []netip.Addr) func([]byte) bool {
	return func(ip []byte) bool {
		h, _, err := packet.ParseIPHeader(ip)
		return err == nil && *h.Protocol == packet.ProtocolTCP && slices.Contains(addrs, h.Dst)
	}
}

// segmentWire is a wire for a TCP that is made by hand. Its times are those of the case,
// and it is read beside it.
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

// timestampsLen is what most hosts spend of each segment on an option. The judge's TCP does
// without, and asks for segments that are as much shorter where a case wants a path of some
// MTU: they hold then what they would.
const timestampsLen = 12

// newSegments is a TCP by hand for one case, on a path of that MTU over a cable that may
// carry more. All of its packets are in the record.
func newSegments(w *realWorld, wire openWire, record *conformance.Record, at netip.Addr, cableMTU, mtu int) *tcpwire.Host {
	wire.Forget()
	cfg := tcpwire.Config{Wire: record.Recorded(w, &segmentWire{wire, w}), Addr: at, MTU: cableMTU, Waiting: w.waiting, End: w.end}
	if mtu < cableMTU {
		cfg.MSS = mtu - 20 - 20 - timestampsLen
		if at.Is6() {
			cfg.MSS -= 20
		}
	}
	return tcpwire.New(cfg)
}
