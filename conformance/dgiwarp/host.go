package dgiwarp

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// host is the device with its application, and a scripted host on its wire, without queue pairs.
type host struct {
	*rig.Rig
	syncQP *syncQP
	// pending are received packets that the case has not consumed.
	pending []arrival
	// checkIP checks the IP header of each packet, if it is not nil.
	checkIP func(packet.IP)
}

// UDP ports: the protocol's port for the device, and another for the peer, to detect mix-ups.
const (
	devicePort = 65041
	peerPort   = 52049
)

// onHost makes the body of a case from a function that creates its queue pairs.
func onHost(body func(*host)) func(*conformance.Bench) error {
	return rig.Body(func(r *rig.Rig) { body(&host{Rig: r}) })
}

// route has the addresses, the traffic class and the hop limit of a packet to the device.
type route struct {
	from, to netip.AddrPort
	// tclass is the traffic class; its lower two bits are ECN.
	tclass uint8
	// hopLimit is the hop limit; 0 means 64.
	hopLimit uint8
}

// defaultRoute returns the route from the n-th address of the peer.
func (h *host) defaultRoute(n int) route {
	return route{from: netip.AddrPortFrom(h.Peers[n], peerPort), to: netip.AddrPortFrom(h.Local[0], devicePort)}
}

// toAddr returns the route with another destination address.
func (w route) toAddr(dst netip.Addr) route {
	w.to = netip.AddrPortFrom(dst, w.to.Port())
	return w
}

// fromPort returns the route with another source port.
func (w route) fromPort(port uint16) route {
	w.from = netip.AddrPortFrom(w.from.Addr(), port)
	return w
}

// sendOctets sends octets in a UDP datagram with the addresses, ports and traffic class of r.
func (h *host) sendOctets(r route, octets []byte) {
	ip := packet.IP{Src: r.from.Addr(), Dst: r.to.Addr(), TClass: &r.tclass}
	if r.hopLimit != 0 {
		ip.HopLimit = &r.hopLimit
	}
	udp := packet.UDP{SrcPort: new(r.from.Port()), DstPort: new(r.to.Port())}
	if err := h.Wire.Send(ip.Append(nil, udp.Append(nil, ip, octets))); err != nil {
		rig.Abort(fmt.Errorf("send %v from %v to %v: %w", iwarp.ParsePacket(octets).Packet, r.from, r.to, err))
	}
}

// arrival is a received packet of the device.
type arrival struct {
	iwarp.ReceivedPacket
	IP  packet.IP
	UDP packet.UDP
	At  time.Duration
	// size is the length of the IP packet.
	size int
}

// nextPacket returns the next packet, pending ones first; false after the timeout.
func (h *host) nextPacket(timeout time.Duration) (arrival, bool) {
	if len(h.pending) > 0 {
		a := h.pending[0]
		h.pending = h.pending[1:]
		return a, true
	}
	return h.nextOnWire(timeout)
}

// mustNextPacket returns the next packet, or fails the case if none arrives; want describes it.
func (h *host) mustNextPacket(want string) arrival {
	a, ok := h.nextPacket(h.ResponseTimeout())
	h.Check(ok, want, "nothing in %v", h.ResponseTimeout())
	return a
}

// nextOnWire returns the next UDP datagram on the wire; false after the timeout. It fails the case
// if the CRC is wrong, the packet is longer than the path MTU or may be fragmented (which UDP
// sockets do not show), or checkIP fails.
func (h *host) nextOnWire(timeout time.Duration) (arrival, bool) {
	until := h.Now() + timeout
	for {
		f, err := h.Wire.Recv(max(0, until-h.Now()))
		switch {
		case errors.Is(err, verbs.ErrTimeout):
			return arrival{}, false
		case err != nil:
			rig.Abort(err)
		}
		a, ok := parseFrame(f)
		if !ok {
			continue
		}
		ok = packet.Get(a.CRCStatus, iwarp.CRCWrong) == iwarp.CRCCorrect
		h.Check(ok, fmt.Sprintf("the CRC %08x", a.CorrectCRC), "%08x in %v", iwarp.Val(a.CRC), a)
		h.Check(a.size <= h.MTU, fmt.Sprintf("packets of at most %d octets", h.MTU), "%d in %v", a.size, a)
		h.Check(h.UDPSockets || !a.IP.Fragmented() && packet.Get(a.IP.DF, true), "packets that may not be fragmented", "%v", a)
		if h.checkIP != nil {
			h.checkIP(a.IP)
		}
		return a, true
	}
}

// parseFrame parses a frame; false if it is no complete UDP datagram.
func parseFrame(f conformance.Frame) (a arrival, ok bool) {
	ip, payload, _, err := packet.ParseIP(f.Packet)
	if err != nil || packet.Get(ip.Protocol, 0) != packet.ProtocolUDP {
		return a, false
	}
	udp, octets, _, err := packet.ParseUDP(payload)
	if err != nil {
		return a, false
	}
	return arrival{ReceivedPacket: iwarp.ParsePacket(octets), IP: ip, UDP: udp, At: f.At, size: len(f.Packet)}, true
}

// checkPacket fails the case unless a packet matches want.
func (h *host) checkPacket(want iwarp.Packet, got arrival) {
	if d := want.Diff(got.ReceivedPacket); d != nil {
		h.Fail(fmt.Sprintf("%v with %s", want, d.Want()), "%v with %s", got.Packet, d.Got())
	}
}

// nextPackets returns the next n packets, or fails the case.
func (h *host) nextPackets(n int) []arrival {
	all := make([]arrival, n)
	for i := range all {
		all[i] = h.mustNextPacket(fmt.Sprintf("packet %d of %d", i+1, n))
	}
	return all
}

// expectSilence fails the case if the device sends a packet. It observes the device until another
// of its queue pairs has answered a request, which shows that all earlier packets are processed; in
// virtual time also for the duration quiet after that, in which timers may expire.
func (h *host) expectSilence(quiet time.Duration) {
	a, ok := h.packetAfterSync(quiet)
	h.Check(!ok, "nothing is sent", "%v", a.Packet)
}

// expectIdle fails the case if the device sends a packet, or completes a request or receive.
func (h *host) expectIdle() {
	h.expectSilence(silencePeriod)
	h.ExpectNoCompletion()
}

// expectNoCompletionYet expects no completion after the device has processed all packets.
func (h *host) expectNoCompletionYet() {
	h.syncDevice()
	h.ExpectNoCompletion()
}

// silencePeriod is how long a silent device is observed if no timer runs.
const silencePeriod = rig.SilencePeriod

// packetAfterSync returns the first packet that the device has sent before its reply to syncDevice.
// In virtual time, if there is none, it waits for quiet and returns a packet that arrives by then.
func (h *host) packetAfterSync(quiet time.Duration) (arrival, bool) {
	h.syncDevice()
	if len(h.pending) == 0 && !h.Virtual {
		return arrival{}, false
	}
	return h.nextPacket(quiet)
}

// syncDevice waits until the device has processed all packets: until syncQP, a queue pair for this
// purpose only, has replied to a later one. Other packets that arrive meanwhile become pending.
func (h *host) syncDevice() {
	if h.syncQP == nil {
		h.syncQP = newSyncQP(h)
	}
	h.syncQP.requestReply()
	for {
		a, ok := h.nextOnWire(h.ResponseTimeout())
		switch {
		case !ok:
			h.Fail("a reply of the synchronization queue pair", "nothing in %v", h.ResponseTimeout())
		case h.syncQP.answered(a):
			return
		case !h.syncQP.isReply(a):
			h.pending = append(h.pending, a)
		}
	}
}

// drainArrived returns the packets that the device has sent so far.
func (h *host) drainArrived() []arrival { return h.drain(0) }

// drain returns the packets sent so far, and in virtual time later ones until none comes for quiet.
func (h *host) drain(quiet time.Duration) (all []arrival) {
	for {
		a, ok := h.packetAfterSync(quiet)
		if !ok {
			return all
		}
		all = append(all, a)
		all = append(all, h.pending...)
		h.pending = nil
	}
}
