package wire

import "testing"

// BenchmarkStream frames and deframes FPDUs for an MSS of 1460 octets, in segments of that size.
func BenchmarkStream(b *testing.B) {
	for _, framing := range framings {
		name := "plain"
		if framing.CRC {
			name = "crc"
		}
		if framing.Markers {
			name += "+markers"
		}
		u := ulpdu(1, MULPDU(1460, framing.Markers))
		b.Run("append/"+name, func(b *testing.B) {
			framer, buf := NewFramer(framing), make([]byte, 0, 2048)
			b.SetBytes(int64(len(u)))
			for b.Loop() {
				buf = framer.Append(buf[:0], u[:18], u[18:])
			}
		})
		b.Run("next/"+name, func(b *testing.B) {
			framer := NewFramer(framing)
			wire := framer.Append(nil, u)
			d := NewDeframer(framing)
			b.SetBytes(int64(len(u)))
			for b.Loop() {
				d.offset = 0 // the same stream offset each time
				if _, _, ok := d.Next(wire); !ok {
					b.Fatal("no FPDU")
				}
			}
		})
	}
}
