package softiwarp

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softiwarp/engine"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// The tests of this file invert each bit of a start-up frame, which has no CRC. The connection is
// then established, or both sides get an error of package verbs that names the peer, within the
// start-up timeout.

// frameBits is the number of bits of a start-up frame without private data.
const frameBits = 8 * (wire.StartFrameLen + wire.EnhancedLen)

// startupOutcome is the outcome of a connection whose start-up was corrupted.
type startupOutcome struct {
	connect error
	accepts []error
	took    time.Duration
}

// startCorrupted connects two devices while a bit of one frame is inverted.
func startCorrupted(t *testing.T, cfg Config, reply bool, bit int) (o startupOutcome) {
	t.Helper()
	event := sim.StreamEvent{Conn: 1, FromListener: reply, Offset: uint64(bit / 8), Action: sim.StreamCorrupt, Bit: uint8(bit % 8)}
	w, a, b := pairInWorld(t, 1, sim.NetConfig{Stream: sim.StreamConfig{Events: []sim.StreamEvent{event}}}, cfg, cfg)
	w.Go("server", func(*sim.Proc) error {
		l := listen(t, b, at(5))
		for {
			req, err := l.GetRequest(15 * time.Second)
			if errors.Is(err, verbs.ErrTimeout) {
				return l.Close()
			}
			if err != nil {
				return err
			}
			e := newEnd(t, b)
			c, err := req.Accept(e.QP, connParam, time.Minute)
			o.accepts = append(o.accepts, err)
			if err == nil {
				must.Do(t, c.WaitDisconnect(time.Minute))
			}
		}
	})
	w.Go("client", func(p *sim.Proc) error {
		p.Sleep(time.Millisecond)
		e := newEnd(t, a)
		began := p.Now()
		c, err := a.cm.Connect(e.QP, at(5), connParam, time.Minute)
		o.connect, o.took = err, p.Now()-began
		if err != nil {
			return e.QP.Close() // still usable
		}
		must.Do(t, c.Disconnect())
		return c.WaitDisconnect(time.Minute)
	})
	if err := w.RunPrograms(); err != nil {
		t.Errorf("bit %d of octet %d, reply %v: %v", bit%8, bit/8, reply, err)
	}
	return o
}

func TestCorruptedStartupIsReported(t *testing.T) {
	causes := []error{verbs.ErrRejected, verbs.ErrTimeout, verbs.ErrClosed}
	for _, cfg := range []Config{{}, {ClientServer: true}} {
		seen := map[error]int{}
		for bit := range 2 * frameBits {
			reply := bit >= frameBits
			o := startCorrupted(t, cfg, reply, bit%frameBits)
			where := fmt.Sprintf("bit %d of octet %d, reply %v", bit%8, bit%frameBits/8, reply)
			for _, err := range append(o.accepts, o.connect) {
				i := slices.IndexFunc(causes, func(w error) bool { return errors.Is(err, w) })
				var op *verbs.OpError
				switch {
				case err == nil:
					seen[nil]++
				case i < 0 || !errors.As(err, &op) || op.Obj == "":
					t.Errorf("%s: %v is no error of package verbs, or does not name the peer", where, err)
				default:
					seen[causes[i]]++
				}
			}
			if o.took > 11*time.Second {
				t.Errorf("%s: connect took %v", where, o.took)
			}
		}
		for _, w := range append(causes[:2:2], nil) {
			if seen[w] == 0 {
				t.Errorf("client-server %v: no case failed with %v", cfg.ClientServer, w)
			}
		}
		t.Logf("client-server %v: %v", cfg.ClientServer, seen)
	}
}

// The error wraps its cause.
func TestStartupErrorsKeepTheirCause(t *testing.T) {
	const flags, revision = 8 * 16, 8*17 + 3
	for name, tc := range map[string]struct {
		reply           bool
		bit             int
		connect, accept error
	}{
		"key of the Reply":      {true, 8 * 3, mpa.ErrNoMPA, nil},
		"revision of the Reply": {true, revision, mpa.ErrRevision, nil},
		"markers in the Reply":  {true, flags + 7, nil, mpa.ErrCRC},
		"model of the Reply":    {true, 8*wire.StartFrameLen + 7, mpa.ErrModel, engine.ErrTerminated},
		"depths of the Reply":   {true, 8*(wire.StartFrameLen+2) + 4, mpa.ErrIRD, engine.ErrTerminated},
		"length of the Reply":   {true, 8*19 + 2, mpa.ErrShortEnhanced, nil},
	} {
		o := startCorrupted(t, Config{}, tc.reply, tc.bit)
		if tc.connect != nil && !(errors.Is(o.connect, tc.connect) && errors.Is(o.connect, verbs.ErrRejected)) {
			t.Errorf("%s: connect: %v", name, o.connect)
		}
		if tc.accept != nil && !(len(o.accepts) == 1 && errors.Is(o.accepts[0], tc.accept) && errors.Is(o.accepts[0], verbs.ErrRejected)) {
			t.Errorf("%s: accept: %v", name, o.accepts)
		}
		var rej *verbs.RejectError
		if tc.connect != nil && (!errors.As(o.connect, &rej) || rej.Text == "") {
			t.Errorf("%s: %v has no reason", name, o.connect)
		}
		t.Logf("%s: %v; %v", name, o.connect, o.accepts)
	}
}

// If a program moves its queue pair to ERR or RESET while it connects, Connect returns ErrInvalid.
func TestQueuePairFailedWhileConnecting(t *testing.T) {
	for _, state := range []verbs.QPState{verbs.QPStateErr, verbs.QPStateReset} {
		inWorld(t, later(func(p *sim.Proc, d *Device) {
			e := newEnd(t, d)
			p.World().Go("breaks", func(p *sim.Proc) error {
				p.Sleep(time.Millisecond)
				return e.QP.Modify(verbs.QPAttr{State: state}, verbs.QPAttrState)
			})
			_, err := d.cm.Connect(e.QP, at(5), connParam, verbs.Forever)
			must.Fail(t, state.String(), err, verbs.ErrInvalid, "aborted")
		}), func(p *sim.Proc, d *Device) {
			l := listen(t, d, at(5))
			req := must.Get(l.GetRequest(verbs.Forever))(t)
			p.Sleep(5 * time.Millisecond)
			e := newEnd(t, d)
			if _, err := req.Accept(e.QP, connParam, verbs.Forever); err == nil {
				t.Error("Accept succeeded")
			}
		})
	}
}
