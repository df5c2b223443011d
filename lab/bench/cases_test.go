package bench

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/verbs"
)

// The cases of this file run in simulation and in namespaces.

func provider(tb testing.TB, name string) *nics.Provider {
	tb.Helper()
	p, err := nics.Find(name)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

const qkey = 0x1234

// datagrams is a UD queue pair with a receive, on a RoCE device.
type datagrams struct {
	b   *conformance.Bench
	pd  verbs.PD
	cq  verbs.CQ
	mr  verbs.MR
	qp  verbs.QP
	buf []byte
}

func newDatagrams(b *conformance.Bench, dev verbs.Context) (*datagrams, error) {
	u := &datagrams{b: b, buf: make([]byte, 4096)}
	var err error
	if u.pd, err = dev.AllocPD(); err != nil {
		return nil, err
	}
	if u.cq, err = dev.CreateCQ(verbs.CQInit{Depth: 16}); err != nil {
		return nil, err
	}
	if u.mr, err = u.pd.RegMR(verbs.MRInit{Buf: u.buf, Access: verbs.AccessLocalWrite}); err != nil {
		return nil, err
	}
	u.qp, err = dev.CreateQP(verbs.QPInit{
		Type: verbs.QPTypeUD, PD: u.pd, SendCQ: u.cq, RecvCQ: u.cq,
		Caps: verbs.QPCaps{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	if err != nil {
		return nil, err
	}
	if err = verbsToRTS(u.qp); err != nil {
		return nil, err
	}
	_, err = u.qp.PostRecv([]verbs.RecvWR{{WRID: 1, SGL: []verbs.SGE{verbs.SGEOf(u.mr, 0, 2048)}}})
	return u, err
}

func verbsToRTS(qp verbs.QP) error {
	return errors.Join(
		qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: 1, QKey: qkey},
			verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrQKey),
		qp.Modify(verbs.QPAttr{State: verbs.QPStateRTR}, verbs.QPAttrState),
		qp.Modify(verbs.QPAttr{State: verbs.QPStateRTS}, verbs.QPAttrState|verbs.QPAttrSQPSN),
	)
}

// next waits for a completion.
func (u *datagrams) next(timeout time.Duration) (verbs.WC, error) {
	var wc [1]verbs.WC
	for deadline := u.b.Now() + timeout; ; u.b.Sleep(10 * time.Microsecond) {
		n, err := u.cq.Poll(wc[:])
		if n == 1 || err != nil {
			return wc[0], err
		}
		if u.b.Now() > deadline {
			return wc[0], verbs.ErrTimeout
		}
	}
}

// send posts a datagram and waits for its completion.
func (u *datagrams) send(text string, to netip.Addr, qpn verbs.QPN) error {
	ah, err := u.pd.CreateAH(verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: verbs.GIDFrom(to), HopLimit: 33, TrafficClass: 0x68, FlowLabel: 0x12345}})
	if err != nil {
		return err
	}
	n := copy(u.buf[3000:], text)
	_, err = u.qp.PostSend([]verbs.SendWR{{
		WRID: 2, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{verbs.SGEOf(u.mr, 3000, n)},
		UD: verbs.UD{AH: ah, QPN: qpn, QKey: qkey},
	}})
	if err != nil {
		return err
	}
	wc, err := u.next(u.b.ResponseTimeout())
	if err == nil && wc.Status != verbs.WCSuccess {
		err = fmt.Errorf("the send ended with %v", wc.Status)
	}
	return err
}

// rawSend returns a packet from a peer to a UD queue pair.
func rawSend(from, to netip.Addr, qpn verbs.QPN, text string) (link.Datagram, []byte) {
	d := link.Datagram{
		Src: netip.AddrPortFrom(from, 0xc123), Dst: netip.AddrPortFrom(to, 4791), TClass: 0x68, HopLimit: 17, IPID: 99, FlowLabel: 0xabcde,
		Variants: link.NoChecksum,
	}
	p := wire.Packet{
		BTH:  wire.BTH{Opcode: wire.MakeOpcode(wire.TransportUD, wire.OpSendOnly), PKey: 0xffff, DestQP: uint32(qpn), PSN: 7, PadCount: uint8(wire.PadLen(len(text)))},
		DETH: wire.DETH{QKey: qkey, SrcQP: 0x77}, Payload: []byte(text),
	}
	d.Payload = p.Append(nil)
	wire.NewICRC(d.Src, d.Dst).Seal(99, d.Payload)
	return d, link.AppendUDP(nil, &d)
}

// echo sends a datagram from the wire to the device, and one back.
func echo(b *conformance.Bench) error {
	u, err := newDatagrams(b, b.Device)
	if err != nil {
		return err
	}
	sent, packet := rawSend(b.Peers[1], b.Local[0], u.qp.QPN(), "ping")
	if err := b.Wire.Send(packet); err != nil {
		return err
	}
	wc, err := u.next(b.ResponseTimeout())
	if err != nil || wc.Status != verbs.WCSuccess {
		return fmt.Errorf("receive: %v, %w", wc.Status, err)
	}
	if got := string(u.buf[verbs.GRHLen:wc.ByteLen]); got != "ping" || wc.SrcQP != 0x77 {
		return fmt.Errorf("received %q from %#x", got, wc.SrcQP)
	}
	back, err := verbs.InitAHFromWC(1, 0, &wc, u.buf)
	if err != nil || back.GRH.DGID.Addr() != b.Peers[1] || back.GRH.TrafficClass != sent.TClass {
		return fmt.Errorf("the datagram has the source %+v: %w", back, err)
	}
	if err := u.send("pong", b.Peers[2], 0x77); err != nil {
		return err
	}
	f, err := b.Wire.Recv(b.ResponseTimeout())
	if err != nil {
		return err
	}
	h, p, err := parseSend(f.Packet)
	switch {
	case err != nil:
		return err
	case h.Src.Addr() != b.Local[0] || h.Dst != netip.AddrPortFrom(b.Peers[2], 4791) || string(p.Payload) != "pong" || p.BTH.DestQP != 0x77:
		return fmt.Errorf("%v > %v: %+v", h.Src, h.Dst, p)
	case h.HopLimit != 33 || h.TClass&^3 != 0x68 || h.Src.Addr().Is6() && h.FlowLabel != 0x12345:
		return fmt.Errorf("header %+v", h)
	}
	if _, err := b.Wire.Recv(0); !errors.Is(err, verbs.ErrTimeout) {
		return fmt.Errorf("a second packet: %w", err)
	}
	return nil
}

func parseSend(packet []byte) (d link.Datagram, p wire.Packet, err error) {
	d, err = parsePacket(packet)
	if err != nil {
		return d, p, err
	}
	if !wire.NewICRC(d.Src, d.Dst).Check(uint16(d.IPID), d.Payload) {
		return d, p, errors.New("the ICRC is wrong")
	}
	return d, p, p.Parse(d.Payload)
}

// toUnknownQP sends a datagram to a queue pair that does not exist.
func toUnknownQP(b *conformance.Bench) error {
	_, packet := rawSend(b.Peers[0], b.Local[0], 0x4242, "hello")
	if err := b.Wire.Send(packet); err != nil {
		return err
	}
	if f, err := b.Wire.Recv(20 * time.Millisecond); !errors.Is(err, verbs.ErrTimeout) {
		return fmt.Errorf("the device replied %x, %w", f.Packet, err)
	}
	return nil
}

// toOtherAddresses has the device send to an unknown address, and to a group.
func toOtherAddresses(b *conformance.Bench) error {
	u, err := newDatagrams(b, b.Device)
	if err != nil {
		return err
	}
	group := netip.MustParseAddr("ff15::1234")
	if b.Local[0].Is4() {
		group = netip.MustParseAddr("239.1.2.3")
	}
	if err := b.Wire.Join(group); err != nil {
		return err
	}
	unknown := hostAddr(6, 200)
	if b.Local[0].Is4() {
		unknown = hostAddr(4, 200)
	}
	for _, to := range []netip.Addr{unknown, group} {
		if err := u.send("hello", to, 0x77); err != nil {
			return err
		}
		f, err := b.Wire.Recv(b.ResponseTimeout())
		if err != nil {
			return fmt.Errorf("to %v: %w", to, err)
		}
		if h, _, err := parseSend(f.Packet); err != nil || h.Dst.Addr() != to {
			return fmt.Errorf("%v, not to %v: %w", h.Dst, to, err)
		}
	}
	return nil
}

// linkDownAndUp takes the link down and up.
func linkDownAndUp(b *conformance.Bench) error {
	u, err := newDatagrams(b, b.Device)
	if err != nil {
		return err
	}
	for _, up := range []bool{false, true} {
		if err := setLinkAndWait(b, up); err != nil {
			return err
		}
		_, packet := rawSend(b.Peers[0], b.Local[0], u.qp.QPN(), fmt.Sprint(up))
		if err := b.Wire.Send(packet); err != nil {
			return err
		}
	}
	wc, err := u.next(b.ResponseTimeout())
	if err != nil {
		return err
	}
	if got := string(u.buf[verbs.GRHLen:wc.ByteLen]); got != "true" {
		return fmt.Errorf("received %q", got)
	}
	return nil
}

// reopenDevice closes the device while its link is down, and opens it again. The port is not active
// until the link comes up, and then receives and sends.
func reopenDevice(b *conformance.Bench) error {
	if err := errors.Join(b.SetLink(false), b.Reopen()); err != nil {
		return err
	}
	if err := errors.Join(setLinkAndWait(b, false), setLinkAndWait(b, true)); err != nil {
		return err
	}
	return echo(b)
}

// setLinkAndWait takes the link up or down, and waits until the device's port agrees.
func setLinkAndWait(b *conformance.Bench, up bool) error {
	if err := b.SetLink(up); err != nil {
		return err
	}
	want := verbs.PortDown
	if up {
		want = verbs.PortActive
	}
	return waitUntil(b, func() error {
		if a, err := b.Device.QueryPort(1); err != nil || a.State != want {
			return fmt.Errorf("up %v: the port is in state %v, %w", up, a.State, err)
		}
		return nil
	})
}

// waitUntil waits until check succeeds, and returns its last error.
func waitUntil(b *conformance.Bench, check func() error) error {
	for until := b.Now() + b.ResponseTimeout(); ; b.Sleep(100 * time.Microsecond) {
		if err := check(); err == nil || b.Now() > until {
			return err
		}
	}
}

// removeAndAddAddress removes the device's address and adds it again.
func removeAndAddAddress(b *conformance.Bench) error {
	if err := b.SetAddress(b.Peers[0], false); err == nil {
		return errors.New("SetAddress removed the address of another host")
	}
	u, err := newDatagrams(b, b.Device)
	if err != nil {
		return err
	}
	for _, present := range []bool{false, false, true, true} {
		if err := b.SetAddress(b.Local[0], present); err != nil {
			return err
		}
		err := waitUntil(b, func() error {
			if e, err := b.Device.QueryGID(1, 0); err != nil || (e.GID.Addr() == b.Local[0]) != present {
				return fmt.Errorf("present %v: entry 0 is %v, %w", present, e.GID, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
		_, packet := rawSend(b.Peers[0], b.Local[0], u.qp.QPN(), fmt.Sprint(present))
		if err := b.Wire.Send(packet); err != nil {
			return err
		}
		b.Sleep(100 * time.Millisecond) // until the packet has arrived
	}
	wc, err := u.next(b.ResponseTimeout())
	if err != nil {
		return err
	}
	if got := string(u.buf[verbs.GRHLen:wc.ByteLen]); got != "true" {
		return fmt.Errorf("received %q", got)
	}
	for range 2 {
		if e, err := b.Device.WaitAsync(b.ResponseTimeout()); err != nil || e.Type != verbs.EventGIDChange {
			return fmt.Errorf("event %v, %w", e.Type, err)
		}
	}
	return nil
}

// sendToPartner sends a datagram from the device to a partner.
func sendToPartner(b *conformance.Bench) error {
	dev, err := b.Partner()
	if err != nil {
		return err
	}
	u, err := newDatagrams(b, b.Device)
	if err != nil {
		return err
	}
	other, err := newDatagrams(b, dev)
	if err != nil {
		return err
	}
	gid, err := dev.QueryGID(1, 0)
	if err != nil {
		return err
	}
	if err := u.send("partner", gid.GID.Addr(), other.qp.QPN()); err != nil {
		return err
	}
	wc, err := other.next(b.ResponseTimeout())
	if err != nil || string(other.buf[verbs.GRHLen:wc.ByteLen]) != "partner" {
		return fmt.Errorf("the partner received %q: %w", other.buf[verbs.GRHLen:wc.ByteLen], err)
	}
	f, err := b.Wire.Recv(b.ResponseTimeout()) // the wire sees all packets of the device
	if err != nil {
		return err
	}
	h, _, err := parseSend(f.Packet)
	if err != nil || h.Dst.Addr() != gid.GID.Addr() {
		return fmt.Errorf("%v, %w", h.Dst, err)
	}
	return nil
}

// tasks checks that a task runs concurrently with the case.
func tasks(b *conformance.Bench) error {
	var mu sync.Mutex // tasks in real time run concurrently
	var order []string
	note := func(name string) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, name)
	}
	anyNoted := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(order) > 0
	}
	slow := b.Go("slow", func() error {
		for !anyNoted() {
			b.Sleep(time.Millisecond)
		}
		note("slow")
		return errors.New("slow failed")
	})
	if err := slow.Wait(time.Millisecond); !errors.Is(err, verbs.ErrTimeout) {
		return fmt.Errorf("wait for the task: %w", err)
	}
	note("case")
	for range 2 {
		if err := slow.Wait(b.ResponseTimeout()); err == nil || err.Error() != "slow failed" {
			return fmt.Errorf("the task ended with %w", err)
		}
	}
	if !slices.Equal(order, []string{"case", "slow"}) {
		return fmt.Errorf("order %v", order)
	}
	return nil
}
