package uswitch

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
)

// TestTCPSurvivesLossDuplicationAndReordering sends GSO packets through FrameHandlers that drop,
// duplicate and reorder. The receiving kernel verifies every checksum.
func TestTCPSurvivesLossDuplicationAndReordering(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for name, path := range map[string]func(seed uint64) FrameHandler{
			"transparent": func(uint64) FrameHandler { return nil },
			"impaired":    func(seed uint64) FrameHandler { return impaired(seed) },
		} {
			t.Run(fmt.Sprintf("%s, IPv6 %v", name, v6), func(t *testing.T) {
				at, hosts := cables(t, 2, 1500)
				computeInKernel(t, at, portName(1))
				s := run(t, at, 2, func(c *Config) { c.Ports[0].In, c.Ports[1].Out, c.Ports[1].In = path(1), path(2), path(3) })
				sent := make([]byte, 4<<20)
				for i := range sent {
					sent[i] = byte(i * i >> 8)
				}
				got := transfer(t, hosts[0], hosts[1], v6, sent)
				if sha256.Sum256(got) != sha256.Sum256(sent) {
					t.Errorf("%d of %d bytes arrived, or wrong ones (prefix: %v)", len(got), len(sent), bytes.HasPrefix(sent, got))
				}
				st := s.Stats()
				if SupportsUDPGSO() && (st.Ports[0].In.GSOPackets == 0 || st.Ports[1].Out.GSOPackets == 0) {
					t.Errorf("%d GSO packets in, %d out, want some", st.Ports[0].In.GSOPackets, st.Ports[1].Out.GSOPackets)
				}
			})
		}
	}
}

// transfer sends b between two hosts over TCP and returns the received bytes.
func transfer(t *testing.T, from, to *host, v6 bool, b []byte) []byte {
	t.Helper()
	var l net.Listener
	must.Do(t, to.do(func() (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(to.addr(v6), 0).String())
		return err
	}))
	defer l.Close()
	failed := make(chan error, 1)
	go func() {
		failed <- from.do(func() error {
			c, err := net.DialTimeout("tcp", l.Addr().String(), 20*time.Second)
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = c.Write(b)
			return err
		})
	}()
	must.Do(t, l.(*net.TCPListener).SetDeadline(time.Now().Add(20*time.Second)))
	c := must.Get(l.Accept())(t)
	defer c.Close()
	must.Do(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	got := must.Get(io.ReadAll(c))(t)
	must.Do(t, <-failed)
	return got
}

// impaired returns a FrameHandler that drops, duplicates and delays some frames.
func impaired(seed uint64) FrameHandler {
	rng := rand.New(rand.NewPCG(seed, seed))
	return handlerFunc(func(f Frame, emit Emit) {
		switch rng.IntN(500) {
		case 0:
		case 1:
			emit(0, f)
			emit(0, f)
		case 2:
			emit(200*time.Microsecond, f)
		case 3:
			emit(0, Frame{bytes.Clone(f.Bytes), f.ChecksumPartial})
		default:
			emit(0, f)
		}
	})
}
