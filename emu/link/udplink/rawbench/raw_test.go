//go:build linux

package rawbench

import (
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/link/udplink"
	"github.com/fabrictest/fabrictest/emu/link/udplink/internal/nstest"
)

func TestMain(m *testing.M) { nstest.Main(m) }

func open(tb testing.TB, h *nstest.Host, v6 bool) *udplink.Link {
	tb.Helper()
	var l *udplink.Link
	err := h.Do(func() (err error) {
		l, err = udplink.Open(udplink.Config{Local: h.Addr(v6, 4791), FixID: func([]byte, uint16) {}})
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { l.Close() })
	return l
}

func TestTmp(t *testing.T) {
	a, b := nstest.Pair(t, 9000)
	for _, v6 := range []bool{true, false} {
		ea := Endpoint{NetNS: a.FD(), Addr: a.Addr(v6, 0)}
		eb := Endpoint{NetNS: b.FD(), Addr: b.Addr(v6, 0)}
		la, lb := open(t, a, v6), open(t, b, v6)
		fmt.Println(la.Info())
		for _, sc := range []StreamConfig{{}, {NoCopy: true, NoCRC: true}} {
			sc.Duration = 300 * time.Millisecond
			c, err := Compare(7, func() (float64, error) {
				r, err := Stream(ea, eb, sc)
				if r.Lost()+r.Corrupt > 0 {
					t.Log(r)
				}
				return r.Gbps(), err
			}, func() (float64, error) {
				r, err := LinkStream(la, lb, b.Addr(v6, 4791), sc)
				if r.Lost()+r.Corrupt > 0 {
					t.Log(r)
				}
				return r.Gbps(), err
			})
			fmt.Println(v6, "stream", sc.NoCopy, c, err)
		}
		for _, pc := range []PingPongConfig{{}, {Headers: true}, {Block: true, Rounds: 10000}, {Block: true, Headers: true, Rounds: 10000}} {
			c, err := Compare(9, func() (float64, error) {
				r, err := PingPong(ea, eb, pc)
				return r.HalfMicros(), err
			}, func() (float64, error) {
				r, err := LinkPingPong(la, lb, a.Addr(v6, 4791), b.Addr(v6, 4791), pc)
				return r.HalfMicros(), err
			})
			fmt.Println(v6, "pingpong block", pc.Block, "headers", pc.Headers, c, err)
		}
	}
}
