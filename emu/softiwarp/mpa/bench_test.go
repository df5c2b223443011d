package mpa

import (
	"fmt"
	"testing"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
)

// bench is a sender with a payload and buffers.
type bench struct {
	c       *Conn
	header  []byte
	payload [][]byte
	vectors [][]byte
}

// sends queues n FPDUs and passes all output to TCP.
func (b *bench) sends(n int) {
	for range n {
		b.c.Send(b.header, b.payload)
	}
	for n > 0 {
		b.vectors = b.c.Output(b.vectors[:0])
		total := 0
		for _, v := range b.vectors {
			total += len(v)
		}
		n -= b.c.Sent(total)
	}
}

// benchmarkCases runs with ULPDUs of a small message, and of a full Ethernet segment at MTU 1500
// and 9000.
func benchmarkCases(t testing.TB, run func(name string, f wire.Framing, ulpdu int)) {
	t.Helper()
	for _, f := range framings {
		for _, size := range []int{64, 1448, 8948} {
			n := wire.MULPDU(size, f.Markers)
			if size == 64 {
				n = 18 + size
			}
			name := fmt.Sprintf("size=%d", size)
			if f.CRC {
				name += "/crc"
			}
			if f.Markers {
				name += "/markers"
			}
			run(name, f, n)
		}
	}
}

const batch = 32

func BenchmarkSend(b *testing.B) {
	benchmarkCases(b, func(name string, f wire.Framing, ulpdu int) {
		b.Run(name, func(b *testing.B) {
			s := &bench{c: sending(b, Config{}, f), header: make([]byte, 18), payload: [][]byte{make([]byte, ulpdu-18)}}
			b.SetBytes(int64(ulpdu))
			b.ReportAllocs()
			for i := 0; i < b.N; i += batch {
				s.sends(batch)
			}
		})
	})
}

func BenchmarkReceive(b *testing.B) {
	benchmarkCases(b, func(name string, f wire.Framing, ulpdu int) {
		b.Run(name, func(b *testing.B) {
			c := responding(b, Config{}, f, f)
			whole, count := cycle(f, ulpdu)
			b.SetBytes(int64(ulpdu))
			b.ReportAllocs()
			for i := 0; i < b.N; i += count {
				receive(b, c, whole, count)
			}
		})
	})
}

// cycle returns a stream of FPDUs after which the marker positions repeat.
func cycle(f wire.Framing, ulpdu int) (b []byte, count int) {
	framer := wire.NewFramer(f)
	for count < batch || f.Markers && len(b)%wire.MarkerInterval != 0 {
		b = framer.Append(b, make([]byte, ulpdu))
		count++
	}
	return b, count
}

// receive passes whole to c as a socket would, 64 KiB at a time.
func receive(t testing.TB, c *Conn, whole []byte, count int) {
	for len(whole) > 0 {
		n := min(len(whole), 64<<10)
		c.Input(0, whole[:n])
		whole = whole[n:]
		for e, ok := c.Next(); ok; e, ok = c.Next() {
			if e.Kind != EventULPDU {
				t.Fatal(e.Err)
			}
			count--
		}
	}
	if count != 0 {
		t.Fatalf("%d ULPDUs are missing", count)
	}
}

func TestFPDUsDoNotAllocate(t *testing.T) {
	benchmarkCases(t, func(name string, f wire.Framing, ulpdu int) {
		s := &bench{c: sending(t, Config{}, f), header: make([]byte, 18), payload: [][]byte{make([]byte, ulpdu-18)}}
		for range 20 {
			s.sends(batch)
		}
		if n := testing.AllocsPerRun(50, func() { s.sends(batch) }); n > 0 {
			t.Errorf("%s: %v allocations to send %d FPDUs", name, n, batch)
		}
		c := responding(t, Config{}, f, f)
		whole, count := cycle(f, ulpdu)
		if n := testing.AllocsPerRun(20, func() { receive(t, c, whole, count) }); n > 0 {
			t.Errorf("%s: %v allocations to receive %d FPDUs", name, n, count)
		}
	})
}

// TestBusyQueueDoesNotAllocate keeps FPDUs queued all the time, so that the ring wraps.
func TestBusyQueueDoesNotAllocate(t *testing.T) {
	for _, f := range framings {
		c := sending(t, Config{QueueFPDUs: 16}, f)
		header, payload := make([]byte, 18), [][]byte{make([]byte, 600)}
		short := [][]byte{payload[0][:100]}
		var vectors [][]byte
		i := 0
		turn := func() {
			for c.Room() {
				if i++; i%3 == 0 {
					c.Send(header, short)
				} else {
					c.Send(header, payload)
				}
			}
			vectors = c.Output(vectors[:0])
			c.Sent(1 + i*37%2000)
		}
		for range 500 {
			turn()
		}
		if n := testing.AllocsPerRun(500, turn); n > 0 {
			t.Errorf("%+v: %v allocations", f, n)
		}
		if len(c.out.ring) > 16<<10 || c.out.vectors.Len() > 1024 {
			t.Errorf("%+v: the ring has grown to %d octets and %d vectors", f, len(c.out.ring), c.out.vectors.Len())
		}
	}
}
