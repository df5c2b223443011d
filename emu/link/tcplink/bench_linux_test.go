package tcplink

import (
	"fmt"
	"testing"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
)

// BenchmarkEmptyPoll measures Ready and Read of a stream without bytes.
func BenchmarkEmptyPoll(b *testing.B) {
	for _, streams := range []int{1, 2, 3, 100} {
		b.Run(fmt.Sprint(streams), func(b *testing.B) {
			x, y := openNet(b, Config{}), openNet(b, Config{})
			dialed, _ := connectStreams(b, x, y, streams)
			drainReady(x)
			byID := make([]*Stream, 1000)
			for _, s := range dialed {
				byID[s.ID()] = s
			}
			ready, buf := make([]link.StreamReady, 64), make([]byte, 4096)
			b.ReportAllocs()
			for b.Loop() {
				for _, r := range ready[:x.Ready(ready)] {
					byID[r.ID].Read(1, buf)
				}
			}
		})
	}
}

// BenchmarkMessage writes and reads a message of header, payload and trailer on one thread.
func BenchmarkMessage(b *testing.B) {
	for _, size := range []int{64, 8192} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			x, y := openNet(b, Config{}), openNet(b, Config{})
			dialed, accepted := connectStreams(b, x, y, 1)
			bufs, in := [][]byte{make([]byte, 20), make([]byte, size), make([]byte, 4)}, make([]byte, 128<<10)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if n, err := dialed[0].Writev(1, bufs, false); n != size+24 || err != nil {
					b.Fatal(n, err)
				}
				for got := 0; got < size+24; {
					n := must.Get(accepted[0].Read(1, in))(b)
					got += n
				}
			}
		})
	}
}
