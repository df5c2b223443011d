package sim

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
)

// host is a port that records every received packet and its time.
type host struct {
	*Port
	addr netip.AddrPort
	got  []arrival
}

type arrival struct {
	at mono.Time
	d  link.Datagram
}

func addrOf(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}) }

// HandleEvent is the handler of OnReadable.
func (h *host) HandleEvent(now mono.Time, _ uint64) {
	var ds [2]link.Datagram
	for {
		n, err := h.Recv(now, ds[:])
		if err != nil {
			panic(err)
		}
		if n == 0 {
			return
		}
		for _, d := range ds[:n] {
			d.Payload = bytes.Clone(d.Payload)
			h.got = append(h.got, arrival{now, d})
		}
	}
}

// to returns a datagram for another host.
func (h *host) to(o *host, payload []byte) link.Datagram {
	return link.Datagram{Src: h.addr, Dst: o.addr, IPID: link.IPIDUnknown, Payload: payload}
}

// send sends to another host and returns how many datagrams Send accepted.
func (h *host) send(t testing.TB, o *host, payloads ...[]byte) int {
	t.Helper()
	var ds []link.Datagram
	for _, p := range payloads {
		ds = append(ds, h.to(o, p))
	}
	n := must.Get(h.Send(h.net.w.Now(), ds))(t)
	return n
}

// times returns the arrival times.
func (h *host) times() (all []mono.Time) {
	for _, a := range h.got {
		all = append(all, a.at)
	}
	return all
}

// numbers returns the numbers of the numbered payloads received.
func (h *host) numbers() (all []int) {
	for _, a := range h.got {
		all = append(all, int(binary.BigEndian.Uint32(a.d.Payload)))
	}
	return all
}

func numbered(i int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(i)) }

// sized returns the payload of an IPv4 packet of n bytes.
func sized(n int) []byte { return make([]byte, n-28) }

func newNet(t testing.TB, w *World, cfg NetConfig) *Net {
	t.Helper()
	n := must.Get(NewNet(w, cfg))(t)
	return n
}

// attach adds a host; its name is h and a number.
func attach(t testing.TB, n *Net, cfg PortConfig) *host {
	t.Helper()
	i := len(n.ports)
	cfg.Name = fmt.Sprint("h", i)
	if cfg.Addrs == nil {
		cfg.Addrs = []netip.Addr{addrOf(i)}
	}
	p := must.Get(n.Attach(cfg))(t)
	h := &host{Port: p, addr: netip.AddrPortFrom(cfg.Addrs[0], 4791)}
	p.OnReadable(h, 0)
	return h
}

// pair returns two hosts on a cable.
func pair(t testing.TB, w *World, l LinkConfig) (a, b *host) {
	t.Helper()
	n := newNet(t, w, NetConfig{Cable: true})
	return attach(t, n, PortConfig{Link: l}), attach(t, n, PortConfig{Link: l})
}

// star returns hosts on a switch.
func star(t testing.TB, w *World, count int, l LinkConfig) []*host {
	t.Helper()
	n := newNet(t, w, NetConfig{})
	var all []*host
	for range count {
		all = append(all, attach(t, n, PortConfig{Link: l}))
	}
	return all
}

// toy dissects a test protocol: one byte of flow, four of sequence number, one of field.
type toy struct{}

func toyPacket(flow byte, seq uint32) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flow}, seq), 0)
}

func (toy) Dissect(b []byte) (impair.Flow, uint32, bool) {
	if len(b) != 6 {
		return 0, 0, false
	}
	return impair.Flow(b[0]), binary.BigEndian.Uint32(b[1:]), true
}

func (toy) SetField(d *link.Datagram, field string, v uint64) error {
	if field != "field" {
		return fmt.Errorf("no field %q", field)
	}
	d.Payload[5] = byte(v)
	return nil
}
