package mpihost_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/transport"
)

// BenchmarkWorld measures a whole simulation of a small program: two hosts with NICs, on each a rank,
// and a message that is longer than the eager limit. An explorer of schedules runs many such programs,
// with few buffers: to allocate and clear those by default takes most of the time.
func BenchmarkWorld(b *testing.B) {
	const size = 20 << 10
	sent := bytes.Repeat([]byte("rendezvous"), size/10+1)[:size]
	program := func(w *mpi.World) error {
		if w.Rank() == 0 {
			return w.Send(sent, 1, 7)
		}
		received := make([]byte, size)
		if _, err := w.Recv(received, 0, 7); err != nil {
			return err
		}
		if !bytes.Equal(received, sent) {
			return errors.New("the message has changed")
		}
		return nil
	}
	fewBuffers := carrier.Config{PacketSize: 512, SharedReceives: 16, Datagrams: carrier.Datagrams{Receives: 16}}
	for name, cfg := range map[string]carrier.Config{"default": {}, "few-buffers": fewBuffers} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				must.Get(mpihost.InWorld(mpihost.Fabric{Ranks: 2, Seed: 1}, func(e *transport.Env) error {
					return mpi.Run(e, mpi.Options{Carrier: cfg}, program)
				}))(b)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
		})
	}
}
