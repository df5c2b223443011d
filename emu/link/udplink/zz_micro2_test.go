//go:build linux

package udplink

import (
	"net/netip"
	"testing"

	"github.com/fabrictest/fabrictest/emu/link"
)

func BenchmarkGo(b *testing.B) {
	for _, dst := range []netip.AddrPort{netip.MustParseAddrPort("127.0.0.5:9999"), netip.MustParseAddrPort("[::1]:9999")} {
		l, err := Open(Config{Local: dst})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { l.Close() })
		out := []link.Datagram{{Dst: dst, Payload: make([]byte, 64)}}
		var in [4]link.Datagram
		l.Send(0, out)
		l.Recv(0, in[:])
		b.Run("gate", func(b *testing.B) {
			for b.Loop() {
				l.gate.enter()
				l.gate.leave()
			}
		})
		b.Run("deliver", func(b *testing.B) {
			for b.Loop() {
				l.in.filled, l.in.next, l.in.off = 1, 0, 0
				l.deliver(in[:])
			}
		})
		b.Run("pack", func(b *testing.B) {
			for b.Loop() {
				l.out.pack(out, 0)
			}
		})
		b.Run("fetch-empty", func(b *testing.B) {
			for b.Loop() {
				l.in.fetch(l.fd, 1)
			}
		})
		b.Run("recv-empty", func(b *testing.B) {
			for b.Loop() {
				l.Recv(0, in[:])
			}
		})
		out15 := make([]link.Datagram, 15)
		for i := range out15 {
			out15[i] = link.Datagram{Dst: dst, Payload: make([]byte, 4096)}
		}
		l.out.gso = true
		b.Run("pack15", func(b *testing.B) {
			for b.Loop() {
				l.out.pack(out15, 0)
			}
		})
	}
}
