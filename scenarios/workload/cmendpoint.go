package workload

import (
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// The workload "calls" makes connections through the connection manager, one after the other, each
// with a few messages in turn. It checks requests, rejects, replies and disconnects of the
// connection manager. With Reconnect a broken call is made again; private data tells how many
// messages either end has received, and both continue from there.

// cmEndpoint is the common state of client and server. Rank 2i is the client of rank 2i+1.
type cmEndpoint struct {
	*env
	peer int // -1 for the last rank of an odd number
	side int // 0: client, 1: server
	nic  *NIC
	cm   verbs.CM
	ud   bool // the device has UD services to resolve

	out, in      traffic.Content // messages that this end sends and receives
	received     int             // messages, over all calls
	sent         int             // messages that the peer is known to have received
	flow         Flow
	connectTimes traffic.Histogram
	totalCalls   int // calls
}

// Ports of the server.
const (
	callPort               = 4000
	sidrPort               = 4001 // UD service
	closedPort             = 4002 // not listened on
	sidrQKey               = 0x1234567
	rejectInvalidServiceID = 8 // REJ reason of the InfiniBand CM
	// rejectNoResources is the REJ reason of a CM that has reached a limit.
	rejectNoResources = 3
	// cmFreeTimeout is how long a CM may keep a disconnected connection: up to 16 DREQs,
	// 4.3 s apart, may be lost.
	cmFreeTimeout = 70 * time.Second
)

// errPeerEnded means that the peer has ended or given up.
var errPeerEnded = errors.New("the peer has ended")

// errCallBroken means that the connection of a call failed.
var errCallBroken = errors.New("the call broke off")

// Run makes the calls, or accepts them. A call is a connection with up to Depth messages.
func (e *cmEndpoint) Run() (*Report, error) {
	e.log = newEventLog(e.rank)
	if e.peer < 0 {
		e.setStatus("no partner: the number of ranks is odd")
		return e.log.report(), nil
	}
	e.flow = Flow{Peer: e.peer, Rail: e.nic.Rail, Service: ServiceRC, Expected: e.cfg.Messages}
	pattern := traffic.NewPattern(e.rank.Seed, e.cfg.Bytes)
	e.out = traffic.Content{Pattern: pattern, Key: traffic.Derive(e.rank.Seed, e.rank.Rank, e.peer)}
	e.in = traffic.Content{Pattern: pattern, Key: traffic.Derive(e.rank.Seed, e.peer, e.rank.Rank)}
	e.totalCalls = (e.cfg.Messages + e.cfg.Depth - 1) / e.cfg.Depth
	e.log.samples.expect(e.cfg.Messages)
	e.noteProgress()
	err := e.run()
	if errors.Is(err, errPeerEnded) {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("rank %d: %w", e.rank.Rank, err)
	} else {
		e.log.mark("done")
	}
	e.log.sendSample(e.proc.Now())
	r := e.log.report()
	r.Flows, r.Latency = []Flow{e.flow}, e.connectTimes.Summary()
	return r, err
}

// run runs the client or the server.
func (e *cmEndpoint) run() (err error) {
	if e.cm, err = e.nic.Device.CM(); err != nil {
		return err
	}
	attr, err := e.nic.Device.QueryDevice()
	if err != nil {
		return err
	}
	e.ud = attr.Caps.Has(verbs.CapUD)
	if e.side == 0 {
		return (&cmClient{cmEndpoint: e}).run()
	}
	return (&cmServer{cmEndpoint: e}).run()
}

// messagesInCall returns the number of messages of call i.
func (e *cmEndpoint) messagesInCall(i int) int { return min(e.cfg.Depth, e.cfg.Messages-i*e.cfg.Depth) }

// param returns the connection parameters, without private data.
func (e *cmEndpoint) param() verbs.ConnParam {
	return verbs.ConnParam{
		ResponderResources: 1, InitiatorDepth: 1,
		RetryCount: uint8(*e.cfg.Retries), RNRRetryCount: uint8(*e.cfg.RNRRetries),
	}
}

// setStatus publishes the current step.
func (e *cmEndpoint) setStatus(format string, args ...any) {
	e.live.publish(e.proc.Now(), fmt.Sprintf("calls: %d of %d messages received; ", e.received, e.cfg.Messages)+fmt.Sprintf(format, args...))
}

// violation records a broken guarantee of the connection manager or the connection.
func (e *cmEndpoint) violation(kind traffic.ViolationKind, format string, args ...any) {
	e.log.violation(kind, "%s with %s: %s", e.host(), hostOf(e.peer), fmt.Sprintf(format, args...))
}

// checkStalled returns a StallError if there was no progress for StallTimeout, but not before twice
// the time that one CM request or pause between calls may take. A StallTimeout of 0 is no limit.
func (e *cmEndpoint) checkStalled() error {
	if e.rank.StallTimeout <= 0 {
		return nil
	}
	limit := max(e.rank.StallTimeout, 2*callTimeout, 2*e.cfg.Think)
	if e.proc.Now()-e.lastProgress > limit {
		return &traffic.StallError{After: limit, Status: e.Status()}
	}
	return nil
}

// pollControl returns the next control message of the peer; empty if there is none. It returns
// errPeerEnded if the peer has ended or given up, and a StallError after a long idle time.
func (e *cmEndpoint) pollControl() (string, error) {
	b, err := e.rank.Control.Recv(e.peer, 0)
	switch {
	case errors.Is(err, verbs.ErrTimeout):
		return "", e.checkStalled()
	case errors.Is(err, ErrGone):
		e.log.mark("%s is gone", hostOf(e.peer))
		return "", errPeerEnded
	case err != nil:
		return "", err
	}
	e.noteProgress()
	if string(b) == controlGaveUp {
		return "", errPeerEnded
	}
	return string(b), nil
}

// controlGaveUp is the control message of a client that makes no more attempts at a call. Otherwise
// the server sends its address, and the client controlDone at the end.
const controlGaveUp = "gave up"

// sendControl sends a control message to the peer. A peer that has ended is not an error.
func (e *cmEndpoint) sendControl(message string) error {
	if err := e.rank.Control.Send(e.peer, []byte(message)); err != nil && !errors.Is(err, ErrGone) {
		return err
	}
	return nil
}

// retryWhileFull repeats a CM request that fails for lack of resources, at most for the time that
// the CM may keep the resources of disconnected connections (TIMEWAIT).
func (e *cmEndpoint) retryWhileFull(request func() error) error {
	for until := e.proc.Now() + cmFreeTimeout; ; e.proc.Sleep(lastBackoff) {
		err := request()
		var rejected *verbs.RejectError
		full := errors.Is(err, verbs.ErrNoMemory) || errors.As(err, &rejected) && rejected.Reason == rejectNoResources
		if !full || e.proc.Now() >= until {
			return err
		}
		e.noteProgress()
	}
}

// callError records a CM error that the fabric or the peer has caused, and returns errCallBroken
// for it. It returns other errors unchanged.
func (e *cmEndpoint) callError(err error) error {
	if e.recordFabricError(err) {
		return errCallBroken
	}
	return err
}

// recordFabricError reports whether err is a CM error that the fabric or the peer has caused. It
// records such an error like a completion with the status of a response timeout.
func (e *cmEndpoint) recordFabricError(err error) bool {
	if !isFabricError(err) {
		return false
	}
	e.log.recordFailure(e.proc.Now(), e.peer, e.nic.Rail, verbs.WCRespTimeoutErr)
	return true
}
