package softiwarp

import (
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softiwarp/engine"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// A bit of a ULPDU_Length that arrives inverted makes the frame claim more octets
// than its sender sent. The CRC covers the length, but is looked at when all that
// it covers has come. So the receiver waits, silently, for what nobody will send,
// and all these end the wait: more octets, either side's closing, a limit that was
// asked for. Nothing of the damaged frame is ever believed.
func TestLengthenedULPDULengthTimesOut(t *testing.T) {
	// Behind the Request and the RTR comes the first send, and its length first.
	const first = wire.StartFrameLen + wire.EnhancedLen + 20
	damaged := sim.NetConfig{Stream: sim.StreamConfig{Events: []sim.StreamEvent{
		{Conn: 1, Offset: first, Action: sim.StreamCorrupt, Bit: 2}, // 1024 octets more
	}}}
	const limit = 2 * time.Second
	crcError := engine.VendorError(wire.TermMPACRC, false)
	closed := engine.VendorError(wire.TermMPAClosed, false)
	for name, tc := range map[string]struct {
		cfg    engine.Config
		then   func(c *couple)
		vendor uint32 // of the receive that is flushed
		within time.Duration
		count  string
	}{
		"more octets": {then: func(c *couple) {
			for range 20 {
				c.a.Send(0, 64)
			}
		}, vendor: crcError, within: time.Second, count: "mpa_bad_crcs"},
		"the sender closes":   {then: func(c *couple) { must.Do(c, c.ca.Disconnect()) }, vendor: closed, within: time.Second, count: "mpa_truncated"},
		"the receiver closes": {then: func(c *couple) { must.Do(c, c.cb.Disconnect()) }, vendor: closed, within: time.Second, count: "mpa_truncated"},
		"a limit":             {cfg: engine.Config{MPA: mpa.Config{FPDUTimeout: limit}}, then: func(*couple) {}, vendor: closed, within: limit + time.Second, count: "mpa_timeouts"},
	} {
		t.Run(name, func(t *testing.T) {
			coupled(t, damaged, func(c *couple) {
				c.b.Recv(0, 64)
				c.a.Do(verbs.SendWR{Opcode: verbs.OpSend, SGL: c.a.SGL(0, 64)})
				// It has left, and completed: TCP has it. For long nothing happens.
				began := c.p.Now()
				if tc.cfg.MPA.FPDUTimeout == 0 {
					c.p.Sleep(100 * time.Second)
					began = c.p.Now()
				}
				var wc [1]verbs.WC
				if n, err := c.b.CQ.Poll(wc[:]); n != 0 || err != nil {
					c.Fatalf("%d receives completed, %v", n, err)
				}
				tc.then(c)
				must.Do(c, c.cb.WaitDisconnect(time.Minute))
				if took := c.p.Now() - began; took > tc.within {
					t.Errorf("took %v", took)
				}
				if got := c.b.ExpectWC(verbs.WCWRFlushErr); got.VendorErr != tc.vendor {
					t.Errorf("flushed for %#x, want %#x", got.VendorErr, tc.vendor)
				}
				if n := counter(c.b.Dev.(*Device), tc.count); n != 1 {
					t.Errorf("%s is %d", tc.count, n)
				}
				for i, v := range c.b.Buf[:64] {
					if v != 0 {
						t.Fatalf("octet %d of the damaged frame was placed", i)
					}
				}
			}, Config{}, Config{NIC: tc.cfg})
		})
	}
}

// A length that was made shorter is found out at once.
func TestShortenedULPDULengthIsDetectedAtOnce(t *testing.T) {
	const first = wire.StartFrameLen + wire.EnhancedLen + 20
	coupled(t, sim.NetConfig{Stream: sim.StreamConfig{Events: []sim.StreamEvent{
		{Conn: 1, Offset: first + 1, Action: sim.StreamCorrupt, Bit: 4}, // 18+64 is 0x52
	}}}, func(c *couple) {
		c.b.Recv(0, 64)
		c.a.Send(0, 64)
		if got := c.b.ExpectWC(verbs.WCWRFlushErr); got.VendorErr != engine.VendorError(wire.TermMPACRC, false) {
			t.Errorf("flushed for %#x", got.VendorErr)
		}
	})
}
