package mpi

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/mpi/window"
)

func TestReduceOfAlignedNumbersEqualsReduceOfElements(t *testing.T) {
	const count = 37
	r := rand.New(rand.NewPCG(1, 2))
	for typ := Byte; typ <= BFloat16; typ++ {
		for op := Sum; op <= NoOp; op++ {
			if !op.ValidFor(typ) {
				continue
			}
			for offset := range 2 { // at 1, larger elements are not aligned
				n := count * typ.Size()
				into, from := make([]byte, n+8)[offset:][:n], make([]byte, n+8)[offset:][:n]
				for _, b := range [][]byte{into, from} {
					for i := range b {
						b[i] = byte(r.IntN(120)) // as the highest byte of a float, it is not that of a NaN
					}
				}
				want := slices.Clone(into)
				window.Reduce(want, from, typ, op)
				got := slices.Clone(into)
				if offset > 0 {
					got = append(make([]byte, offset, n+8), got...)[offset:]
				}
				reduce(got, from, typ, op)
				if !bytes.Equal(got, want) {
					t.Errorf("%v of %v at offset %d: %v, want %v", op, typ, offset, got, want)
				}
			}
		}
	}
}

func BenchmarkReduce(b *testing.B) {
	const size = 64 << 10
	for _, t := range []Type{Byte, Int32, Float32, Float64} {
		b.Run(fmt.Sprint(t), func(b *testing.B) {
			into, from := make([]byte, size), make([]byte, size)
			b.SetBytes(size)
			for b.Loop() {
				reduce(into, from, t, Sum)
			}
		})
	}
}
