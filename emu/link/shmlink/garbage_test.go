package shmlink

import (
	"encoding/binary"
	"testing"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
)

// newRing returns a ring in the memory of this process.
func newRing() ring {
	l := layout{ports: 1, mtu: defaultMTU, ringBytes: minRing}
	return l.ring(make([]byte, l.size()), 0, 0)
}

// A consumer reads a ring with any content at any position: it terminates, takes no more bytes than the
// buffer holds, and can take what a producer writes afterwards.
func FuzzRing(f *testing.F) {
	f.Add(uint64(0), uint64(0), uint16(0), []byte{128, 0, 0, 0, 5})
	f.Add(uint64(minRing-64), uint64(minRing+64), uint16(minRing-64), []byte{255, 255, 255, 255})
	f.Add(uint64(1)<<63, uint64(3), uint16(0), []byte{64, 0, 0, 0, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, consumed, produced uint64, at uint16, content []byte) {
		r := newRing()
		c := newConsumer(r)
		c.next = consumed &^ (recordAlign - 1)
		r.consumed.Store(consumed)
		r.produced.Store(produced)
		copy(r.data[at:], content)
		drain(t, &c)
		p := newProducer(r)
		d := text(addr(0, 0), "after")
		for sent := false; !sent; drain(t, &c) { // the consumer may have to skip what follows
			size := recordBytes(len(d.Payload))
			if pos, ok := p.place(size); ok {
				p.append(pos, size, &d)
				p.publish()
				sent = true
			} else {
				p = newProducer(r)
			}
		}
	})
}

// drain takes all records of a ring, and skips invalid ones.
func drain(t *testing.T, c *consumer) {
	t.Helper()
	buf := make([]byte, 9000)
	for range 2 * minRing / recordAlign { // each turn takes a record, skips to the producer, or clears a size
		var d link.Datagram
		ok, garbage := c.take(&d, buf, 1024)
		switch {
		case ok && len(d.Payload) > len(buf):
			t.Fatalf("a payload of %d bytes", len(d.Payload))
		case garbage:
			c.skip()
		case !ok:
			c.release()
			if !c.empty() {
				t.Fatal("a ring without a record to take is not empty: a waiter would spin")
			}
			return
		}
		c.release()
	}
	t.Fatal("the consumer does not come to an end")
}

// A link counts invalid records, goes on with what follows, and with the rings of others.
func TestGarbageHarmsNobody(t *testing.T) {
	for name, garbage := range map[string]func(r *ring, at uint64){
		"size beyond the ring": func(r *ring, at uint64) { *r.size(at) = minRing * 2 },
		"size not aligned":     func(r *ring, at uint64) { *r.size(at) = 65 },
		"size without header":  func(r *ring, at uint64) { *r.size(at) = 32 },
		"end of lap at start":  func(r *ring, at uint64) { *r.size(at) = endOfLap },
		"payload beyond the record": func(r *ring, at uint64) {
			binary.NativeEndian.PutUint32(r.data[at&r.mask+atLength:], 5000)
		},
		"payload beyond memory": func(r *ring, at uint64) {
			binary.NativeEndian.PutUint32(r.data[at&r.mask+atLength:], 1<<32-1)
		},
		"position of the producer": func(r *ring, at uint64) { r.produced.Store(1<<60 + 7); *r.size(at) = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			f := newCable(t, 3, Config{RingBytes: minRing})
			a, b, c := openLink(t, f, addr(0, 0)), openLink(t, f, addr(1, 0)), openLink(t, f, addr(2, 0))
			at := b.in[0].next
			send(t, a, text(addr(1, 0), "garbage"))
			garbage(&b.in[0].ring, at)
			send(t, c, text(addr(1, 0), "other"))
			got := recv(t, b)
			if len(got) != 1 || got[0] != "other" || b.Stats().Garbage != 1 {
				t.Fatalf("received %q, garbage %d", got, b.Stats().Garbage)
			}
			if b.readable() {
				t.Fatal("an empty link is readable")
			}
			must.Do(t, a.Close())
			a = openLink(t, f, addr(0, 0)) // a producer that comes back finds the consumer
			send(t, a, text(addr(1, 0), "next"))
			if got := recv(t, b); len(got) != 1 || got[0] != "next" {
				t.Errorf("after the garbage received %q", got)
			}
		})
	}
}

// A producer does not overrun its ring because the position of the consumer is invalid.
func TestProducerChecksPositionOfConsumer(t *testing.T) {
	r := newRing()
	p := newProducer(r)
	d := text(addr(0, 0), string(make([]byte, 5000)))
	size := recordBytes(len(d.Payload))
	for range 2 * minRing / int(size) {
		if at, ok := p.place(size); ok {
			p.append(at, size, &d)
			p.publish()
		}
		r.consumed.Store(p.next + recordAlign)
	}
	if p.next > minRing {
		t.Errorf("the producer wrote up to %d", p.next)
	}
}
