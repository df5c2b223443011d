package workload

import (
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Calls are connections made by the connection manager, one after the other,
// with a few messages each way: a rank says one, the other answers. They show
// what traffic over queue pairs that are connected by hand cannot: requests,
// refusals, replies, the end of a connection and what is left of it.
//
// A call that broke off is made again where the scenario has ranks reconnect.
// Its request and the reply to it say what either end had heard, so that both go
// on from there.

// calls is what the two ends have in common. Rank 2i calls, rank 2i+1 answers.
type calls struct {
	rank *Rank
	cfg  Config
	peer int // -1 where the number of ranks is odd and nobody is left
	me   int // 0 calls, 1 answers
	nic  *NIC
	cm   verbs.CM
	ud   bool // there are datagram services to be looked up
	log  *journal
	live live

	say, hear content // what this end says and what it is to hear
	heard     int     // messages, over all calls
	said      int     // messages known to have been heard
	flow      Flow
	setup     histogram
	lastMove  time.Duration
	calls     int // in all
}

// Where the answering rank listens.
const (
	callPort   = 4000
	lookupPort = 4001 // a datagram service
	deadPort   = 4002 // nobody listens here
	lookupQKey = 0x1234567
	noSuchPort = 8 // the reason with which requests to a dead port are refused
	// noResources is the reason with which requests beyond a limit are.
	noResources = 3
	// freedWithin is the time after which a connection that both ends have left is
	// freed: 16 disconnect requests, 4.3 s apart, may be lost.
	freedWithin = 70 * time.Second
)

// maxTries is how often a call is made anew before it is given up.
const maxTries = 60

// errHungUp ends an end's part early: the peer has ended, or gave up.
var errHungUp = errors.New("the other end is no longer there")

// errBroken is a call that broke off.
var errBroken = errors.New("the call broke off")

func newCalls(cfg Config, r *Rank) *calls {
	e := &calls{rank: r, cfg: cfg, peer: r.Rank ^ 1, me: r.Rank % 2}
	if e.peer >= cfg.Ranks || r.Rank >= cfg.Ranks {
		e.peer = -1
	}
	e.nic = &r.NICs[r.Rank/2%len(r.NICs)]
	return e
}

// Run makes the calls, or answers them.
func (e *calls) Run() (*Report, error) {
	e.log = newJournal(e.rank)
	if e.peer < 0 {
		e.enter("no partner: the number of ranks is odd")
		return e.log.report(), nil
	}
	e.flow = Flow{Peer: e.peer, Rail: e.nic.Rail, Service: ServiceRC, Expected: e.cfg.Messages}
	pattern := newPattern(e.rank.Seed, e.cfg.Bytes)
	e.say = content{pattern, derive(e.rank.Seed, e.rank.Rank, e.peer)}
	e.hear = content{pattern, derive(e.rank.Seed, e.peer, e.rank.Rank)}
	e.calls = (e.cfg.Messages + e.cfg.Depth - 1) / e.cfg.Depth
	e.log.samples.expect(e.cfg.Messages)
	e.moved()
	err := e.run()
	if errors.Is(err, errHungUp) {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("rank %d: %w", e.rank.Rank, err)
	} else {
		e.log.mark("done")
	}
	e.log.tell(e.rank.Proc.Now())
	r := e.log.report()
	r.Flows, r.Latency = []Flow{e.flow}, e.setup.summary()
	return r, err
}

func (e *calls) run() (err error) {
	if e.cm, err = e.nic.Device.CM(); err != nil {
		return err
	}
	attr, err := e.nic.Device.QueryDevice()
	if err != nil {
		return err
	}
	e.ud = attr.Caps.Has(verbs.CapUD)
	if e.me == 0 {
		return (&caller{calls: e}).run()
	}
	return (&callee{calls: e}).run()
}

// inCall is how many messages call i has.
func (e *calls) inCall(i int) int { return min(e.cfg.Depth, e.cfg.Messages-i*e.cfg.Depth) }

func (e *calls) param() verbs.ConnParam {
	return verbs.ConnParam{
		ResponderResources: 1, InitiatorDepth: 1,
		RetryCount: uint8(*e.cfg.Retries), RNRRetryCount: uint8(*e.cfg.RNRRetries),
	}
}

// enter says what the end is at.
func (e *calls) enter(format string, args ...any) {
	e.live.publish(e.rank.Proc.Now(), fmt.Sprintf("calls: %d of %d messages heard; ", e.heard, e.cfg.Messages)+fmt.Sprintf(format, args...))
}

func (e *calls) violation(kind ViolationKind, format string, args ...any) {
	e.log.violation(kind, "%s with %s: %s", hostOf(e.rank.Rank), hostOf(e.peer), fmt.Sprintf(format, args...))
}

// moved notes that something has happened.
func (e *calls) moved() { e.lastMove = e.rank.Proc.Now() }

func (e *calls) tick() time.Duration {
	if e.rank.Concurrent {
		return realTick
	}
	return simTick
}

// impatient is an error once nothing has happened for too long.
func (e *calls) impatient() error {
	p := e.rank.StallTimeout
	if p <= 0 {
		return nil
	}
	if p = max(p, 2*callTimeout, 2*e.cfg.Think); e.rank.Proc.Now()-e.lastMove > p {
		return &StallError{After: p, Status: e.Status()}
	}
	return nil
}

// glance looks for a word of the other end's besides the fabric.
func (e *calls) glance() (string, error) {
	b, err := e.rank.Control.Recv(e.peer, 0)
	switch {
	case errors.Is(err, verbs.ErrTimeout):
		return "", e.impatient()
	case errors.Is(err, ErrGone):
		e.log.mark("%s is gone", hostOf(e.peer))
		return "", errHungUp
	case err != nil:
		return "", err
	}
	e.moved()
	if string(b) == wordGaveUp {
		return "", errHungUp
	}
	return string(b), nil
}

// What the ends tell each other through Control, once the callee has said where
// it listens.
const (
	wordDone   = "done"
	wordGaveUp = "gave up"
)

func (e *calls) tell(word string) error {
	if err := e.rank.Control.Send(e.peer, []byte(word)); err != nil && !errors.Is(err, ErrGone) {
		return err
	}
	return nil
}

// whenFree makes a request to the connection manager. A manager that keeps as many
// connections as it may, those in time wait included, is asked again until it must have
// freed one.
func (e *calls) whenFree(request func() error) error {
	for until := e.rank.Proc.Now() + freedWithin; ; e.rank.Proc.Sleep(lastBackoff) {
		err := request()
		var rejected *verbs.RejectError
		full := errors.Is(err, verbs.ErrNoMemory) || errors.As(err, &rejected) && rejected.Reason == noResources
		if !full || e.rank.Proc.Now() >= until {
			return err
		}
		e.moved()
	}
}

// fabricFailed reports whether an error of the connection manager is the
// fabric's fault, or the peer's, and notes it.
func (e *calls) fabricFailed(err error) bool {
	if !fabricsFault(err) {
		return false
	}
	e.log.failed(e.rank.Proc.Now(), e.peer, e.nic.Rail, verbs.WCRespTimeoutErr)
	return true
}

// Status says how far the program has come.
func (e *calls) Status() string { return e.live.status() }

// Break moves the queue pair of the call under way to Error.
func (e *calls) Break() error { return e.live.breakAll() }
