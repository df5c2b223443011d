package engine

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// world is hosts on one wire, and virtual time.
type world struct {
	t     testing.TB
	rng   *rand.Rand
	now   mono.Time
	delay time.Duration
	hosts []*host
	air   []flight // in order of arrival
	// see, if there is one, is asked what becomes of every packet: whether it is
	// lost. It may change it.
	see func(d *link.Datagram, k *wire.Packet) (lost bool)
	// Of a hundred packets, so many are lost and so many late.
	loss, late int
	seen       int // packets
}

type flight struct {
	at mono.Time
	d  link.Datagram
}

// host is a NIC with a domain, a CQ and 1 MB of registered memory.
type host struct {
	w    *world
	addr netip.Addr
	nic  *NIC
	pd   nic.PD
	cq   *nic.CQ
	mem  []byte
	mr   *nic.Region
	out  []link.Datagram
}

const (
	testKey  = 0x0badcafe
	testMTU  = 1500
	endBytes = 1 << 18
	recvAt   = 1 << 17
)

func newWorld(t testing.TB) *world {
	return &world{t: t, rng: rand.New(rand.NewPCG(1, 2)), delay: 5 * time.Microsecond}
}

func (w *world) host(edit ...func(*Config)) *host {
	i := len(w.hosts)
	h := &host{w: w, addr: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i + 1)})}
	cfg := Config{GIDs: []verbs.GIDEntry{{GID: verbs.GIDFrom(h.addr)}}, LinkMTU: testMTU}
	cfg.Secret = [16]byte{byte(i), 1, 2, 3}
	for _, f := range edit {
		f(&cfg)
	}
	w.hosts = append(w.hosts, h)
	h.start(cfg)
	return h
}

// start makes the host begin, or begin anew.
func (h *host) start(cfg Config) {
	h.nic = must.Get(New(cfg))(h.w.t)
	h.pd, _ = h.nic.AllocPD()
	h.cq, _ = h.nic.CreateCQ(1 << 14)
	h.mem = make([]byte, 1<<20)
	h.mr = must.Get(h.nic.RegMR(h.pd, nic.Bytes(h.mem), 0x10_0000, verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessRemoteRead|verbs.AccessRemoteAtomic))(h.w.t)
	h.out = make([]link.Datagram, 16)
}

// ah makes an address handle for another host, or for any address.
func (h *host) ah(to netip.Addr) *AH {
	a := must.Get(h.nic.CreateAH(h.pd, verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: verbs.GIDFrom(to)}}, 0))(h.w.t)
	return a
}

// poll moves completions to their ends.
func (w *world) poll() {
	var wcs [16]verbs.WC
	for _, h := range w.hosts {
		for {
			n := must.Get(h.cq.Poll(wcs[:]))(w.t)
			for _, wc := range wcs[:n] {
				if e, ok := h.nic.qps.At(uint32(wc.QPN)).Owner.(*end); ok {
					e.done = append(e.done, wc)
				}
			}
			if n < len(wcs) {
				break
			}
		}
	}
}

// output puts on the wire what hosts have to say.
func (w *world) output() {
	for _, h := range w.hosts {
		for {
			n := h.nic.Output(w.now, h.out)
			for i := range n {
				w.carry(h.out[i])
			}
			if n < len(h.out) {
				break
			}
		}
	}
}

func (w *world) carry(d link.Datagram) {
	w.seen++
	var k wire.Packet
	d.Payload = bytes.Clone(d.Payload)
	if !wire.CheckCRC(d.Payload) || k.Parse(d.Payload) != nil || d.IPBytes() > testMTU {
		w.t.Fatalf("bad packet %x", d.Payload)
	}
	if w.see != nil && w.see(&d, &k) || w.rng.IntN(100) < w.loss {
		return
	}
	at := w.now.Add(w.delay)
	if w.rng.IntN(100) < w.late {
		at = at.Add(time.Duration(w.rng.IntN(100)) * time.Microsecond)
	}
	i, _ := slices.BinarySearchFunc(w.air, at+1, func(f flight, at mono.Time) int { return int(f.at - at) })
	w.air = slices.Insert(w.air, i, flight{at, d})
}

// deliver hands a datagram to the hosts that its address names.
func (w *world) deliver(d *link.Datagram) {
	for _, h := range w.hosts {
		if dst := d.Dst.Addr(); h.addr == dst || isGroup(dst) && d.Src.Addr() != h.addr {
			h.nic.Input(w.now, d)
		}
	}
}

// run lets the world go on for d, or until nothing is left to happen before.
func (w *world) run(d time.Duration) {
	w.t.Helper()
	for limit := w.now.Add(d); ; {
		w.output()
		w.poll()
		next := limit
		if len(w.air) > 0 {
			next = min(next, w.air[0].at)
		}
		for _, h := range w.hosts {
			next = min(next, h.nic.Deadline())
		}
		if next >= limit {
			w.now = limit
			return
		}
		w.now = max(w.now, next)
		for len(w.air) > 0 && w.air[0].at <= w.now {
			f := w.air[0]
			w.air = w.air[1:]
			w.deliver(&f.d)
		}
		for _, h := range w.hosts {
			if h.nic.Deadline() <= w.now {
				h.nic.Tick(w.now)
			}
		}
	}
}

// pair is two hosts with a QP each.
func pair(t testing.TB, reliable bool, edit ...func(*QPConfig)) (*world, *end, *end) {
	w := newWorld(t)
	return w, w.host().own(reliable, edit...), w.host().own(reliable, edit...)
}

// tamper decodes a packet's ULPDU, lets f change it, and puts it back whole.
func tamper(d *link.Datagram, k *wire.Packet, f func(ulpdu []byte)) {
	f(k.ULPDU)
	d.Payload = k.Append(nil)
}
