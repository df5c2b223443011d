package agent

import (
	"testing"

	"github.com/fabrictest/fabrictest/verbs"
)

func BenchmarkCall(b *testing.B) {
	s := newStage(b)
	_, dev, _ := s.dev(b)
	b.Run("query", func(b *testing.B) {
		for b.Loop() {
			if _, err := dev.QueryPort(1); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("poll", func(b *testing.B) {
		cq, err := dev.CreateCQ(verbs.CQInit{Depth: 1})
		if err != nil {
			b.Fatal(err)
		}
		wcs := make([]verbs.WC, 16)
		for b.Loop() {
			if _, err := cq.Poll(wcs); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.SetParallelism(8)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := dev.QueryPort(1); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
	b.Run("with 1 MiB of memory", func(b *testing.B) {
		pd, err := dev.AllocPD()
		if err != nil {
			b.Fatal(err)
		}
		mr, err := pd.RegMR(verbs.MRInit{Buf: make([]byte, 1<<20)})
		if err != nil {
			b.Fatal(err)
		}
		defer mr.Close()
		for b.Loop() {
			if _, err := dev.QueryPort(1); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkJoined(b *testing.B) {
	dev, err := Loopback(newFakeDevice())
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := dev.QueryPort(1); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPostSend(b *testing.B) {
	dev, err := Loopback(newFakeDevice())
	if err != nil {
		b.Fatal(err)
	}
	qp, err := dev.CreateQP(verbs.QPInit{})
	if err != nil {
		b.Fatal(err)
	}
	wrs := []verbs.SendWR{{SGL: []verbs.SGE{{}, {}}, Inline: make([]byte, 64)}}
	for b.Loop() {
		if _, err := qp.PostSend(wrs); err != nil {
			b.Fatal(err)
		}
	}
}
