package dgiwarp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/pcaplink"
	"github.com/fabrictest/fabrictest/emu/providertest"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// fillNumbered fills b with message n: the number, and bytes computed from it.
func fillNumbered(b []byte, n uint32) {
	binary.BigEndian.PutUint32(b, n)
	for i := 4; i < len(b); i++ {
		b[i] = byte(uint32(i)*7 + n)
	}
}

// parseNumbered returns the number of a message of fillNumbered.
func parseNumbered(b []byte) (uint32, error) {
	if len(b) < 4 {
		return 0, fmt.Errorf("message of %d bytes", len(b))
	}
	n := binary.BigEndian.Uint32(b)
	want := make([]byte, len(b))
	fillNumbered(want, n)
	if !bytes.Equal(b, want) {
		return n, fmt.Errorf("message %d has other data than was sent", n)
	}
	return n, nil
}

// Both services may share a device. A queue pair of RD drops packets of UD.
func TestBothServicesOnOneDevice(t *testing.T) {
	w, a, b := pairInWorld(t, 3, impair.Config{})
	var cs []exchange
	for _, opt := range []QPOptions{unreliable, reliable} {
		c := exchange{newEnd(t, a, opt), newEnd(t, b, opt), 20}
		cs = append(cs, c)
		if overRD(c.client.QP) != opt.Reliable || c.client.QP.Type() != verbs.QPTypeUD {
			t.Errorf("%+v: reliable %v, type %v", opt, overRD(c.client.QP), c.client.QP.Type())
		}
		c.inWorld(w)
	}
	must.Do(t, w.RunPrograms())
	w.Go("UD to RD", func(*sim.Proc) error {
		cs[0].client.send(cs[1].server.source(), 0, 10)
		cs[0].client.AwaitSuccess()
		cs[0].client.expectNoCompletion(time.Millisecond)
		return nil
	})
	must.Do(t, w.RunPrograms())
	if n := counter(b, "drop_service"); n != 1 {
		t.Errorf("%d packets of UD for a queue pair of RD", n)
	}
}

// overRD reports whether a queue pair uses RD; verbs has no attribute for it.
func overRD(qp verbs.QP) bool {
	q, ok := qp.(*queuePair)
	return ok && q.q.Reliable
}

// captureEcho runs the echo programs on a lossy cable and captures one side.
func captureEcho(t *testing.T, seed uint64, addrs [2]netip.Addr, file *bytes.Buffer) (lines []string) {
	t.Helper()
	w, ports := providertest.Cable{
		Seed: seed, Addrs: addrs, Up: impair.Config{Specs: []impair.Spec{{LossPPM: 20_000}}},
		Link: sim.LinkConfig{RateBps: 10e9, Latency: time.Microsecond},
	}.Open(t)
	c := pcaplink.NewCapture(file, pcaplink.Options{})
	sent := func(d *link.Datagram) { // the fields that tshark prints
		lines = append(lines, fmt.Sprintf("%s %s %d %d %x %d", d.Src.Addr(), d.Dst.Addr(), d.Src.Port(), d.Dst.Port(), d.Payload, link.UDPHeaderLen+len(d.Payload)))
	}
	a := must.Get(InWorld(w, ports[0], providertest.Tap{PacketLink: c.Wrap("a", ports[0]), Sent: sent}, Config{}))(t)
	b := must.Get(InWorld(w, ports[1], ports[1], Config{}))(t)
	exchange{newEnd(t, a, reliable), newEnd(t, b, reliable), 20}.inWorld(w)
	must.Do(t, w.RunPrograms())
	must.Do(t, c.Close())
	return lines
}

func TestSameSeedGivesSameCapture(t *testing.T) {
	providertest.ExpectSameCapture(t, "", func(seed uint64, file *bytes.Buffer) {
		captureEcho(t, seed, [2]netip.Addr{addrA, addrB}, file)
	})
}

// tshark does not know the protocol, but decodes the packets as valid UDP.
func TestTsharkDecodesCaptures(t *testing.T) {
	for ip, addrs := range map[string][2]netip.Addr{
		"ip":   {netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.1.0.2")},
		"ipv6": {addrA, addrB},
	} {
		var file bytes.Buffer
		lines := captureEcho(t, 3, addrs, &file)
		// Only sent packets: the tap records no others. Simulated links have no checksums.
		got := providertest.Tshark(t, file.Bytes(), "-Y", fmt.Sprintf("%s.src == %v", ip, addrs[0]),
			"-T", "fields", "-E", "separator= ", "-e", ip+".src", "-e", ip+".dst", "-e", "udp.srcport", "-e", "udp.dstport", "-e", "udp.payload",
			"-e", "udp.length")
		if !slices.Equal(got, lines) || len(lines) < 20 {
			t.Errorf("tshark decodes\n%s\nsent\n%s", strings.Join(got, "\n"), strings.Join(lines, "\n"))
		}
	}
}

// checkGroup sends a message to a group. All members receive it, also those on the sender's
// device, and no other ends.
func checkGroup(group netip.Addr, sender *end, members, others []*end) {
	gid := verbs.GIDFrom(group)
	for _, e := range slices.Concat(members, others) {
		e.recv(0, 5000)
	}
	for _, e := range members {
		must.Do(e, e.QP.AttachMulticast(gid))
		must.Do(e, e.QP.AttachMulticast(gid)) // no effect
	}
	fillNumbered(sender.Buf[:5000], 3)
	sender.send(Source{netip.AddrPortFrom(group, 0), verbs.MulticastQPN}, 0, 5000)
	sender.AwaitSuccess()
	for i, e := range members {
		wc := e.AwaitSuccess()
		from, b := e.message(&wc)
		if n, err := parseNumbered(b); err != nil || n != 3 || len(b) != 5000 || from != sender.source() {
			e.Errorf("member %d: %d bytes from %v, want %v; %v", i, len(b), from, sender.source(), err)
		}
		must.Fail(e, "close of a member", e.QP.Close(), verbs.ErrBusy)
		must.Do(e, e.QP.DetachMulticast(gid))
		must.Fail(e, "detach again", e.QP.DetachMulticast(gid), verbs.ErrInvalid)
	}
	for _, e := range others {
		e.expectNoCompletion(20 * time.Millisecond)
	}
}

func TestMulticastInSimulation(t *testing.T) {
	w, ds := netInWorld(t, 8, 4, impair.Config{}, Config{})
	sender := newEnd(t, ds[0], unreliable)
	members := []*end{newEnd(t, ds[0], unreliable), newEnd(t, ds[1], unreliable), newEnd(t, ds[1], unreliable), newEnd(t, ds[2], unreliable)}
	others := []*end{newEnd(t, ds[2], unreliable), newEnd(t, ds[3], unreliable)}
	run(t, w, func(*sim.Proc) {
		checkGroup(netip.MustParseAddr("ff05::1234"), sender, members, others)
	})
}

// All attached queue pairs receive a broadcast: on other devices, and on the sender's.
func TestBroadcastInSimulation(t *testing.T) {
	w := sim.New(sim.Config{Seed: 8, MaxTime: maxWorldTime})
	net := must.Get(sim.NewNet(w, sim.NetConfig{}))(t)
	var ends []*end
	for i := range 4 {
		d := attach(t, w, net, netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), impair.Config{}, Config{})
		ends = append(ends, newEnd(t, d, unreliable), newEnd(t, d, unreliable))
	}
	run(t, w, func(*sim.Proc) {
		checkGroup(netip.MustParseAddr("255.255.255.255"), ends[0], ends[1:6], ends[6:])
	})
}

// RD queue pairs can neither attach to a group nor send to it.
func TestRDRejectsMulticast(t *testing.T) {
	w, a, _ := pairInWorld(t, 8, impair.Config{})
	e := newEnd(t, a, reliable)
	group := netip.MustParseAddr("ff05::1234")
	run(t, w, func(*sim.Proc) {
		must.Fail(t, "attach", e.QP.AttachMulticast(verbs.GIDFrom(group)), verbs.ErrInvalid)
		must.Fail(t, "send", e.trySend(Source{netip.AddrPortFrom(group, 0), verbs.MulticastQPN}, 0, 10), verbs.ErrInvalid)
	})
}
