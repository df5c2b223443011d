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

// network connects hosts, in virtual time.
type network struct {
	t        testing.TB
	rng      *rand.Rand
	now      mono.Time
	delay    time.Duration
	hosts    []*host
	inFlight []delivery // in order of arrival
	// intercept, if not nil, is called with every packet. It may change the packet, or drop it.
	intercept                func(d *link.Datagram, k *wire.Packet) (drop bool)
	lossPercent, latePercent int
	sent                     int // packets
}

type delivery struct {
	at mono.Time
	d  link.Datagram
}

// host is a NIC with a domain, a CQ and 1 MB of registered memory.
type host struct {
	w    *network
	addr netip.Addr
	nic  *NIC
	pd   nic.PD
	cq   *nic.CQ
	mem  []byte
	mr   *nic.Region
	out  []link.Datagram
}

const (
	testKey    = 0x0badcafe
	testMTU    = 1500
	qpMemBytes = 1 << 18
	recvAt     = 1 << 17
)

func newNetwork(t testing.TB) *network {
	return &network{t: t, rng: rand.New(rand.NewPCG(1, 2)), delay: 5 * time.Microsecond}
}

func (w *network) host(edit ...func(*Config)) *host {
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

// start starts or restarts the host.
func (h *host) start(cfg Config) {
	h.nic = must.Get(New(cfg))(h.w.t)
	h.pd, _ = h.nic.AllocPD()
	h.cq, _ = h.nic.CreateCQ(1 << 14)
	h.mem = make([]byte, 1<<20)
	h.mr = must.Get(h.nic.RegMR(h.pd, nic.Bytes(h.mem), 0x10_0000, verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessRemoteRead|verbs.AccessRemoteAtomic))(h.w.t)
	h.out = make([]link.Datagram, 16)
}

// ah creates an address handle.
func (h *host) ah(to netip.Addr) *AH {
	a := must.Get(h.nic.CreateAH(h.pd, verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: verbs.GIDFrom(to)}}, 0))(h.w.t)
	return a
}

// poll adds new completions to those of their QPs.
func (w *network) poll() {
	var wcs [16]verbs.WC
	for _, h := range w.hosts {
		for {
			n := must.Get(h.cq.Poll(wcs[:]))(w.t)
			for _, wc := range wcs[:n] {
				if e, ok := h.nic.qps.At(uint32(wc.QPN)).Owner.(*testQP); ok {
					e.done = append(e.done, wc)
				}
			}
			if n < len(wcs) {
				break
			}
		}
	}
}

// output transmits the packets of all hosts.
func (w *network) output() {
	for _, h := range w.hosts {
		for {
			n := h.nic.Output(w.now, h.out)
			for i := range n {
				w.transmit(h.out[i])
			}
			if n < len(h.out) {
				break
			}
		}
	}
}

// transmit schedules the delivery of a packet, unless it is lost.
func (w *network) transmit(d link.Datagram) {
	w.sent++
	var k wire.Packet
	d.Payload = bytes.Clone(d.Payload)
	if !wire.CheckCRC(d.Payload) || k.Parse(d.Payload) != nil || d.IPBytes() > testMTU {
		w.t.Fatalf("invalid packet %x", d.Payload)
	}
	if w.intercept != nil && w.intercept(&d, &k) || w.rng.IntN(100) < w.lossPercent {
		return
	}
	at := w.now.Add(w.delay)
	if w.rng.IntN(100) < w.latePercent {
		at = at.Add(time.Duration(w.rng.IntN(100)) * time.Microsecond)
	}
	i, _ := slices.BinarySearchFunc(w.inFlight, at+1, func(f delivery, at mono.Time) int { return int(f.at - at) })
	w.inFlight = slices.Insert(w.inFlight, i, delivery{at, d})
}

// deliver passes a datagram to the hosts with its destination address.
func (w *network) deliver(d *link.Datagram) {
	for _, h := range w.hosts {
		if dst := d.Dst.Addr(); h.addr == dst || isGroup(dst) && d.Src.Addr() != h.addr {
			h.nic.Input(w.now, d)
		}
	}
}

// run advances the virtual time by d.
func (w *network) run(d time.Duration) {
	w.t.Helper()
	for limit := w.now.Add(d); ; {
		w.output()
		w.poll()
		next := limit
		if len(w.inFlight) > 0 {
			next = min(next, w.inFlight[0].at)
		}
		for _, h := range w.hosts {
			next = min(next, h.nic.Deadline())
		}
		if next >= limit {
			w.now = limit
			return
		}
		w.now = max(w.now, next)
		for len(w.inFlight) > 0 && w.inFlight[0].at <= w.now {
			f := w.inFlight[0]
			w.inFlight = w.inFlight[1:]
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
func pair(t testing.TB, reliable bool, edit ...func(*QPConfig)) (*network, *testQP, *testQP) {
	w := newNetwork(t)
	return w, w.host().newQP(reliable, edit...), w.host().newQP(reliable, edit...)
}

// modifyULPDU lets f change the ULPDU of a packet, and corrects the CRC.
func modifyULPDU(d *link.Datagram, k *wire.Packet, f func(ulpdu []byte)) {
	f(k.ULPDU)
	d.Payload = k.Append(nil)
}
