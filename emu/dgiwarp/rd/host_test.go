package rd

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/internal/must"
)

// host is a layer with one queue pair, number 7, and the model of its owner.
type host struct {
	net    *network
	addr   netip.AddrPort
	layer  *Layer
	starts uint64
	cfg    Config

	// Numbers of segments by peer: passed to Send, not acknowledged, acknowledged and delivered.
	sending      map[Key]uint32
	waiting      map[Key][]uint32
	acked        map[Key]int
	ackedNumbers map[Key][]uint32
	got          map[Key][]uint32
	failed       []error
	started      map[Key]int
	removed      int
	receives     int // remaining; less than 0: any number
	deferred     int
	unchecked    bool  // delivered segments are not checked
	reply        *host // gets a segment a microsecond later
	// take, if not nil, is called for every delivered segment.
	take func(k Key, n uint32)
}

const testQP = 7

// start starts the host, or restarts it without state.
func (h *host) start() {
	h.starts++
	binary.LittleEndian.PutUint64(h.cfg.Secret[:], h.starts)
	copy(h.cfg.Secret[8:], h.addr.String())
	h.layer = must.Get(New(h.cfg))(h.net.t)
	h.sending, h.waiting, h.acked = map[Key]uint32{}, map[Key][]uint32{}, map[Key]int{}
	h.ackedNumbers = map[Key][]uint32{}
	h.got, h.started = map[Key][]uint32{}, map[Key]int{}
	h.failed, h.receives = nil, -1
}

func (h *host) key(to *host) Key { return Key{RemoteAddr: to.addr, LocalQP: testQP, RemoteQP: testQP} }

// content appends segment n of a host: its number, and octets derived from it.
func content(b []byte, n uint32, size int) []byte {
	b = binary.BigEndian.AppendUint32(b, n)
	for i := 4; i < size; i++ {
		b = append(b, byte(n)+byte(i))
	}
	return b
}

// send passes a segment to the layer, and reports false if there is no room.
func (h *host) send(to *host, size int) bool {
	k := h.key(to)
	p, err := h.layer.Peer(h.net.now, k, 1, 1)
	if err != nil {
		h.net.t.Fatalf("%v to %v: %v", h.addr, to.addr, err)
	}
	if p.Room() == 0 {
		return false
	}
	n := h.sending[k]
	h.sending[k]++
	h.waiting[k] = append(h.waiting[k], n)
	b := content(nil, n, max(size, 4))
	cut := min(len(b), 4+h.net.rng.IntN(60))
	mid := cut + (len(b)-cut)/2
	p.Send(h.net.now, b[:cut], [][]byte{b[cut:mid], b[mid:]})
	return true
}

// drain handles and checks all events of the layer.
func (h *host) drain() {
	t := h.net.t
	for {
		e, ok := h.layer.Next()
		if !ok {
			return
		}
		k := e.Peer.Key
		switch e.Kind {
		case EventBegins:
			h.started[k]++
		case EventSegment:
			if h.receives == 0 {
				h.deferred++
				h.layer.Defer()
				continue
			}
			if h.unchecked {
				h.layer.Accept(h.net.now)
				continue
			}
			n := binary.BigEndian.Uint32(e.Segment)
			if want := content(nil, n, len(e.Segment)); string(want) != string(e.Segment) {
				t.Fatalf("%v: segment %d from %v is damaged: %x", h.addr, n, k.RemoteAddr, e.Segment)
			}
			if h.receives > 0 {
				h.receives--
			}
			h.got[k] = append(h.got[k], n)
			if h.take != nil {
				h.take(k, n)
			}
			h.layer.Accept(h.net.now)
		case EventAcked:
			h.acked[k] += e.Acked
			h.ackedNumbers[k] = append(h.ackedNumbers[k], h.waiting[k][:e.Acked]...)
			h.waiting[k] = h.waiting[k][e.Acked:]
		case EventFailed:
			h.failed = append(h.failed, e.Err)
			h.waiting[k] = nil
		case EventGone:
			h.removed++
			if len(h.waiting[k]) > 0 {
				t.Fatalf("%v: %v was removed with %d segments waiting", h.addr, k, len(h.waiting[k]))
			}
		}
		h.layer.verify(t)
	}
}

// flush transmits all packets of the layer.
func (h *host) flush() {
	n := h.net
	for {
		p, ok := h.layer.Output(n.now, nil)
		if !ok {
			break
		}
		if len(p.Payload) > h.layer.cfg.MaxPacket {
			n.t.Fatalf("packet of %d octets", len(p.Payload))
		}
		n.carry(h, p)
	}
	h.layer.verify(n.t)
}

// deliver passes bytes from src to h, as a NIC does.
func (h *host) deliver(src netip.AddrPort, b []byte, marked bool) {
	var k wire.Packet
	if !wire.CheckCRC(b) || k.Parse(b) != nil || k.Kind == wire.KindUD || k.DstQP != testQP {
		return
	}
	h.layer.Input(h.net.now, src, &k, marked)
	h.drain()
}

// inOrder fails unless to got exactly the first n numbers from from.
func (h *host) inOrder(from *host, n int) {
	h.net.t.Helper()
	got := h.got[h.key(from)]
	if len(got) != n {
		h.net.t.Fatalf("%v got %d segments from %v, want %d", h.addr, len(got), from.addr, n)
	}
	for i, v := range got {
		if int(v) != i {
			h.net.t.Fatalf("%v got segment %d from %v at place %d", h.addr, v, from.addr, i)
		}
	}
}

func (h *host) String() string { return fmt.Sprint(h.addr) }
