package udplink

import (
	"net/netip"
	"testing"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
)

// The benchmarks send from a link to itself over loopback, on one thread. They measure the
// cost of the link; package perflab compares links with bare sockets on a veth pair.

func BenchmarkOneDatagram(b *testing.B) { benchmarkBatch(b, 1, 64) }

// BenchmarkSuperPacket sends and receives as much as one system call can.
func BenchmarkSuperPacket(b *testing.B) { benchmarkBatch(b, 15, 4096) }

func benchmarkBatch(b *testing.B, n, size int) {
	for _, f := range families {
		b.Run(f.name, func(b *testing.B) {
			l := openLink(b, Config{Local: netip.AddrPortFrom(f.addr, 0), PatchIPID: noFix})
			ds := make([]link.Datagram, n)
			for i := range ds {
				ds[i] = link.Datagram{Dst: local(l), Payload: make([]byte, size)}
			}
			in := make([]link.Datagram, 64)
			b.SetBytes(int64(n * size))
			b.ReportAllocs()
			for b.Loop() {
				if k, err := l.Send(0, ds); k != n || err != nil {
					b.Fatal(k, err)
				}
				for got := 0; got < n; {
					k := must.Get(l.Recv(0, in))(b)
					got += k
				}
				l.Recv(0, in) // finds nothing, as a driver's last look does
			}
		})
	}
}

func BenchmarkEmptyRecv(b *testing.B) {
	l := openLink(b, Config{Local: netip.AddrPortFrom(families[0].addr, 0)})
	in := make([]link.Datagram, 64)
	for b.Loop() {
		l.Recv(0, in)
	}
}
