package netns

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Netlink requests. The plan chooses interface indexes, so that no lookup is needed.

const (
	create  = unix.NLM_F_CREATE | unix.NLM_F_EXCL
	replace = unix.NLM_F_CREATE | unix.NLM_F_REPLACE
)

// initialFlags returns the flags of a new device, and the mask of flags to change. With
// NOARP the kernel does no duplicate address detection and joins no multicast group, so
// it sends nothing when the device comes up, until enableARP. Without MULTICAST a router
// port does not join the all-routers group, which would send MLD reports.
func (d *device) initialFlags() (flags, change uint32) {
	change = unix.IFF_NOARP
	if d.namespace.routed {
		change |= unix.IFF_MULTICAST
	}
	return unix.IFF_NOARP, change
}

// attrs returns the attributes of a new device.
func (d *device) attrs() []*nl.RtAttr {
	as := []*nl.RtAttr{
		nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(d.name)),
		nl.NewRtAttr(unix.IFLA_MTU, nl.Uint32Attr(uint32(d.mtu))),
		nl.NewRtAttr(unix.IFLA_ADDRESS, d.mac),
		// One queue each: more cost time and memory on machines with many CPUs.
		nl.NewRtAttr(unix.IFLA_NUM_TX_QUEUES, nl.Uint32Attr(1)),
		nl.NewRtAttr(unix.IFLA_NUM_RX_QUEUES, nl.Uint32Attr(1)),
	}
	if d.softwareGSO { // the kernel segments GSO packets before the device
		as = append(as, nl.NewRtAttr(unix.IFLA_GSO_MAX_SEGS, nl.Uint32Attr(1)))
	}
	return as
}

// newLink returns a request that creates d as a link of a kind such as "veth", and its
// IFLA_INFO_DATA, to which the caller adds the attributes of that kind.
func newLink(d *device, kind string) (req *nl.NetlinkRequest, data *nl.RtAttr) {
	req = nl.NewNetlinkRequest(unix.RTM_NEWLINK, create)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(d.index)
	msg.Flags, msg.Change = d.initialFlags()
	req.AddData(msg)
	for _, a := range d.attrs() {
		req.AddData(a)
	}
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated(kind))
	req.AddData(info)
	return req, info.AddRtAttr(nl.IFLA_INFO_DATA, nil)
}

// addVeth creates a veth pair, each end in its namespace.
func (b *batch) addVeth(d, far *device) {
	req, data := newLink(d, "veth")
	peer := data.AddRtAttr(nl.VETH_INFO_PEER, nil)
	msg := nl.NewIfInfomsgChild(peer, unix.AF_UNSPEC)
	msg.Index = int32(far.index)
	msg.Flags, msg.Change = far.initialFlags()
	for _, a := range far.attrs() {
		peer.AddChild(a)
	}
	peer.AddRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(far.namespace.ns.FD())))
	b.add(req, fmt.Sprintf("make the interfaces %s of %s and %s of %s", d.name, d.namespace.name, far.name, far.namespace.name))
}

// addBridge creates a bridge without forward delay, STP and multicast snooping.
func (b *batch) addBridge(d *device) {
	req, data := newLink(d, "bridge")
	data.AddRtAttr(unix.IFLA_BR_FORWARD_DELAY, nl.Uint32Attr(0))
	data.AddRtAttr(unix.IFLA_BR_STP_STATE, nl.Uint32Attr(0))
	data.AddRtAttr(unix.IFLA_BR_MCAST_SNOOPING, nl.Uint8Attr(0))
	b.add(req, fmt.Sprintf("make the bridge %s of %s", d.name, d.namespace.name))
}

// noFlags is for requests that set no flags, or change none.
const noFlags = 0

// setLink sets those flags of an interface that are in the mask change, and attributes. action
// completes "cannot …" in an error.
func (b *batch) setLink(index int, flags, change uint32, action string, attrs ...*nl.RtAttr) {
	req := nl.NewNetlinkRequest(unix.RTM_NEWLINK, 0)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(index)
	msg.Flags, msg.Change = flags, change
	req.AddData(msg)
	for _, a := range attrs {
		req.AddData(a)
	}
	b.add(req, action)
}

func (b *batch) setUp(index int) {
	b.setLink(index, unix.IFF_UP, unix.IFF_UP, fmt.Sprintf("set interface %d up", index))
}

func (b *batch) setDown(index int) {
	b.setLink(index, noFlags, unix.IFF_UP, fmt.Sprintf("set interface %d down", index))
}

// enableARP clears NOARP. The device must be down.
func (b *batch) enableARP(d *device) {
	b.setLink(d.index, noFlags, unix.IFF_NOARP, fmt.Sprintf("let %s of %s answer for its addresses", d.name, d.namespace.name))
}

func (b *batch) setMTU(d *device) {
	b.setLink(d.index, noFlags, noFlags, fmt.Sprintf("set the MTU of %s of %s to %d", d.name, d.namespace.name, d.mtu),
		nl.NewRtAttr(unix.IFLA_MTU, nl.Uint32Attr(uint32(d.mtu))))
}

// setMaster makes a device a port of its bridge.
func (b *batch) setMaster(d *device) {
	b.setLink(d.index, noFlags, noFlags, fmt.Sprintf("plug %s of %s into its bridge", d.name, d.namespace.name),
		nl.NewRtAttr(unix.IFLA_MASTER, nl.Uint32Attr(uint32(d.master.index))))
}

// disableLinkLocal keeps the kernel from generating and announcing a link-local address.
func (b *batch) disableLinkLocal(d *device) {
	const none = 1 // IN6_ADDR_GEN_MODE_NONE
	spec := nl.NewRtAttr(unix.IFLA_AF_SPEC, nil)
	spec.AddRtAttr(unix.AF_INET6, nil).AddRtAttr(unix.IFLA_INET6_ADDR_GEN_MODE, nl.Uint8Attr(none))
	b.setLink(d.index, noFlags, noFlags, fmt.Sprintf("switch off link-local addresses of %s of %s: has the kernel IPv6?", d.name, d.namespace.name), spec)
}

// addAddr gives a device an address.
func (b *batch) addAddr(d *device, p netip.Prefix) {
	req := nl.NewNetlinkRequest(unix.RTM_NEWADDR, create)
	msg := nl.NewIfAddrmsg(family(p.Addr()))
	msg.Prefixlen = uint8(p.Bits())
	msg.Index = uint32(d.index)
	req.AddData(msg)
	req.AddData(nl.NewRtAttr(unix.IFA_LOCAL, p.Addr().AsSlice()))
	req.AddData(nl.NewRtAttr(unix.IFA_ADDRESS, p.Addr().AsSlice()))
	b.add(req, fmt.Sprintf("give %s of %s the address %v", d.name, d.namespace.name, p))
}

// addNeighbour adds a permanent neighbour entry.
func (b *batch) addNeighbour(d *device, a netip.Addr, mac net.HardwareAddr) {
	b.neigh(d, family(a), noFlags, unix.NUD_PERMANENT, fmt.Sprintf("tell %s of %s about %v", d.name, d.namespace.name, a),
		nl.NewRtAttr(unix.NDA_DST, a.AsSlice()), nl.NewRtAttr(unix.NDA_LLADDR, mac))
}

// addFDBEntry adds a static FDB entry to a bridge port, so that no frame is flooded.
func (b *batch) addFDBEntry(d *device, mac net.HardwareAddr) {
	const viaMaster = 4 // NTF_MASTER
	b.neigh(d, unix.AF_BRIDGE, viaMaster, unix.NUD_NOARP, fmt.Sprintf("tell the bridge that %v is behind %s", mac, d.name),
		nl.NewRtAttr(unix.NDA_LLADDR, mac))
}

// neigh adds or replaces a neighbour or FDB entry. action completes "cannot …" in an error.
func (b *batch) neigh(d *device, family int, flags uint8, state uint16, action string, attrs ...*nl.RtAttr) {
	req := nl.NewNetlinkRequest(unix.RTM_NEWNEIGH, replace)
	req.AddData(&netlink.Ndmsg{Family: uint8(family), Index: uint32(d.index), State: state, Flags: flags})
	for _, a := range attrs {
		req.AddData(a)
	}
	b.add(req, action)
}

// family returns the address family of an address.
func family(a netip.Addr) int {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// hop is a next hop of a route.
type hop struct {
	via netip.Addr
	out *device
}

// setRoute adds or replaces the route to dst.
func (b *batch) setRoute(dst netip.Prefix, hops []hop) {
	req := routeRequest(unix.RTM_NEWROUTE, replace, unix.RTN_UNICAST, dst)
	paths := nl.NewRtAttr(unix.RTA_MULTIPATH, nil)
	for _, h := range hops {
		nh := &nl.RtNexthop{RtNexthop: unix.RtNexthop{Ifindex: int32(h.out.index)}}
		nh.Children = append(nh.Children, nl.NewRtAttr(unix.RTA_GATEWAY, h.via.AsSlice()))
		paths.AddChild(nh)
	}
	req.AddData(paths)
	b.add(req, fmt.Sprintf("route %v over %d next hops", dst, len(hops)))
}

func (b *batch) deleteRoute(dst netip.Prefix) {
	const anyType = unix.RTN_UNSPEC
	b.add(routeRequest(unix.RTM_DELROUTE, noFlags, anyType, dst), fmt.Sprintf("take away the route to %v", dst))
}

// addBlackholeRoutes makes a router drop packets without a route silently,
// instead of sending ICMP errors.
func (b *batch) addBlackholeRoutes() {
	for _, unspecified := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		dst := netip.PrefixFrom(unspecified, 0)
		b.add(routeRequest(unix.RTM_NEWROUTE, replace, unix.RTN_BLACKHOLE, dst), fmt.Sprintf("add the blackhole route to %v", dst))
	}
}

// routeRequest returns a netlink request of a kind (RTM_…) for a route of a type (RTN_…) to dst.
func routeRequest(kind, flags int, typ uint8, dst netip.Prefix) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(kind, flags)
	msg := nl.NewRtMsg()
	msg.Family = uint8(family(dst.Addr()))
	msg.Dst_len = uint8(dst.Bits())
	msg.Type = typ
	req.AddData(msg)
	if dst.Bits() > 0 {
		req.AddData(nl.NewRtAttr(unix.RTA_DST, dst.Addr().AsSlice()))
	}
	return req
}
