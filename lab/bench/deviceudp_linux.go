package bench

import (
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/udpwire"
	"github.com/fabrictest/fabrictest/verbs"
)

// meetSockets is where a RoCE device and the sockets of the judge's host meet.
func (d *Device) meetSockets(table []verbs.GIDEntry) (map[int]ends, error) {
	met, err := socketEnds(table, d.own, d.opt.Peers)
	if err == nil && len(d.opt.Peers) == 0 && d.opt.Partners == d.opt.Interface {
		leaveOne(met)
	}
	return met, err
}

// openSockets opens the judge's end of the cable by sockets of its host. What is left of
// its addresses is for partners.
func (d *Device) openSockets() error {
	var judge, device []netip.Addr
	for _, family := range []int{6, 4} {
		judge, device = append(judge, d.met[family].peers...), append(device, d.met[family].local...)
	}
	d.free = slices.DeleteFunc(d.free, func(p netip.Prefix) bool { return slices.Contains(judge, p.Addr()) })
	w, err := udpwire.Open(udpwire.Config{
		Interface: d.opt.Interface, Port: ib.Port, Addrs: judge, Device: device, Identify: ib.Identify, Within: d.opt.Within,
	})
	if err != nil {
		return err
	}
	d.wire = w
	return nil
}
