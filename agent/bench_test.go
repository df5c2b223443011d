package agent

import (
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

func BenchmarkCall(b *testing.B) {
	s := newTestAgent(b)
	_, dev, _ := s.dev(b)
	b.Run("query", func(b *testing.B) {
		for b.Loop() {
			must.Do(b, must.Err(dev.QueryPort(1)))
		}
	})
	b.Run("poll", func(b *testing.B) {
		cq := must.Get(dev.CreateCQ(verbs.CQInit{Depth: 1}))(b)
		wcs := make([]verbs.WC, 16)
		for b.Loop() {
			must.Do(b, must.Err(cq.Poll(wcs)))
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
		pd := must.Get(dev.AllocPD())(b)
		mr := must.Get(pd.RegMR(verbs.MRInit{Buf: make([]byte, 1<<20)}))(b)
		defer mr.Close()
		for b.Loop() {
			must.Do(b, must.Err(dev.QueryPort(1)))
		}
	})
}

func BenchmarkJoined(b *testing.B) {
	dev := must.Get(Loopback(newFakeDevice()))(b)
	for b.Loop() {
		must.Do(b, must.Err(dev.QueryPort(1)))
	}
}

func BenchmarkPostSend(b *testing.B) {
	dev := must.Get(Loopback(newFakeDevice()))(b)
	qp := must.Get(dev.CreateQP(verbs.QPInit{}))(b)
	wrs := []verbs.SendWR{{SGL: []verbs.SGE{{}, {}}, Inline: make([]byte, 64)}}
	for b.Loop() {
		must.Do(b, must.Err(qp.PostSend(wrs)))
	}
}
