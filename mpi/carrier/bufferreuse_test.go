package carrier_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// slowReader is a rank that replies to every control message before it reads its data,
// and reads the data only after the peer has had time to use every returned credit.
type slowReader struct {
	*rank
	next    int // message that is expected
	replies int // received
	err     error
}

// A message of the test is Eager, a reply is Done.
func (s *slowReader) Arrived(peer int, h *wire.Header, data []byte) error {
	if h.Kind == wire.Done {
		s.replies++
		return nil
	}
	s.Send(peer, &wire.Header{Kind: wire.Done, Send: 1}, nil, nil)
	s.Proc.Sleep(100 * time.Microsecond)
	if want := pattern(len(data), s.next); s.err == nil && (int(h.Tag) != s.next || !bytes.Equal(data, want)) {
		s.err = fmt.Errorf("rank %d: message %d with tag %d holds % x…, want % x…", s.Rank, s.next, h.Tag, data[:8], want[:8])
	}
	s.next++
	return nil
}

func (s *slowReader) Finished(any, carrier.Op, error) {}
func (s *slowReader) Lost(peer int, cause error)      { s.lost[peer] = cause }

// exchange makes rank 0 send messages as fast as its credits allow, with at most window of
// them unanswered, and rank 1 read them.
func (s *slowReader) exchange(from, to, size, window int) error {
	size = min(size, s.MaxData())
	err := s.wait("messages", func() bool {
		for from < min(to, s.replies+window) && s.Rank == 0 && s.CanSend(1, size) {
			s.Send(1, &wire.Header{Kind: wire.Eager, Tag: int32(from)}, pattern(size, from), nil)
			from++
		}
		return s.lost[1-s.Rank] != nil || s.replies >= to || s.next >= to
	})
	if err == nil {
		err = s.lost[1-s.Rank]
	}
	if err == nil {
		err = s.err
	}
	return err
}

// The carrier posts a receive again, or returns a slot or credit, only after the rank has
// read the packet.
func TestReceiveIsReturnedAfterItsPacketIsRead(t *testing.T) {
	const warmUp, count = 40, 400
	for _, c := range []struct {
		provider  string
		design    carrier.Design
		perHost   int
		transport carrier.Transport
	}{
		{"softroce", carrier.SendRecv, 1, carrier.OverConnection},
		{"softroce", carrier.SRQ, 1, carrier.OverConnection},
		{"softroce", carrier.RingSendRecv, 1, carrier.OverRing},
		{"softroce", carrier.RingSRQ, 1, carrier.OverRing},
		{"softroce", carrier.UD, 1, carrier.OverDatagrams},
		{"softroce", carrier.Hybrid, 1, carrier.OverConnection},
		{"softroce", carrier.SRQ, 2, carrier.OverSharedMemory},
		{"softiwarp", carrier.SendRecv, 1, carrier.OverConnection},
		{"softiwarp", carrier.SRQ, 1, carrier.OverConnection},
		{"softiwarp", carrier.RingSendRecv, 1, carrier.OverRing},
		{"softiwarp", carrier.RingSRQ, 1, carrier.OverRing},
		{"dgiwarp", carrier.UD, 1, carrier.OverDatagrams},
	} {
		for _, m := range []struct{ size, window int }{
			{64, count},  // coalesced
			{1024, 2},    // alone, and without a header where the NIC can
			{1008, 1000}, // alone, more than there are credits for
		} {
			t.Run(fmt.Sprintf("%s/%s/%v/%d", c.provider, c.design, c.transport, m.size), func(t *testing.T) {
				cfg := carrier.Config{Design: c.design, Receives: 4, HybridLimits: carrier.HybridLimits{HybridAfter: 4}, PacketSize: 2048}
				cfg.Ring = carrier.Ring{Slots: 2, After: 2}
				f := mpihost.Fabric{Ranks: 2, PerHost: c.perHost, Provider: c.provider, Seed: 1, Limit: time.Hour}
				f.Link.MTU = 1200
				_, err := mpihost.InWorld(f, func(e *transport.Env) error {
					s := &slowReader{rank: &rank{Env: e, lost: make(map[int]error), maxWait: time.Second}}
					var err error
					if s.Carrier, err = carrier.Open(e, cfg, s); err != nil {
						return err
					}
					if err := s.exchange(0, warmUp, m.size, m.window); err != nil { // connects, and creates the rings
						return err
					}
					s.OverwritePosted()
					must.Do(t, s.exchange(warmUp, count, m.size, m.window))
					if n := s.Stats().Packets[c.transport]; s.Rank == 0 && n < 3 {
						return fmt.Errorf("only %d packets went by %v", n, c.transport)
					}
					return s.leave()
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
}
