package bench

import (
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// socketAddrs returns the addresses of a RoCE device and of the judge's UDP
// sockets.
func (d *Device) socketAddrs(table []verbs.GIDEntry) (map[int]addrPair, error) {
	met, err := kernelAddrPairs(roceV2Addrs(table), d.kernelAddrs, d.opt.Peers)
	if err == nil && len(d.opt.Peers) == 0 && d.opt.PartnerInterface == d.opt.Interface {
		reservePartnerAddr(met)
	}
	return met, err
}

// openSockets opens the judge's UDP sockets. The other addresses are for partners.
func (d *Device) openSockets() error {
	var judge, device []netip.Addr
	for _, family := range []int{6, 4} {
		judge, device = append(judge, d.addrs[family].peers...), append(device, d.addrs[family].local...)
	}
	d.partnerAddrs = slices.DeleteFunc(d.partnerAddrs, func(p netip.Prefix) bool { return slices.Contains(judge, p.Addr()) })
	w, err := wire.OpenUDP(wire.UDPConfig{
		Interface: d.opt.Interface, Port: ib.Port, Addrs: judge, Device: device, LookupIPv4ID: ib.Identify, InNamespace: d.opt.InNamespace,
	})
	if err != nil {
		return err
	}
	d.wire = w
	return nil
}
