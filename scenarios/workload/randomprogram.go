package workload

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/scenarios/random"
	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// randomProgram is one end of the traffic of package random between two ranks.
type randomProgram struct {
	*env
	peer int // -1 for the last rank of an odd number
	nic  *NIC

	work       *random.Workload
	services   []string // by connection
	end        *random.End
	lastSample time.Duration
}

// Run runs the traffic and returns the report. A violation of the service, and the end of the peer,
// are recorded in the report, and are no errors of the rank.
func (w *randomProgram) Run() (*Report, error) {
	w.log = newEventLog(w.rank)
	if w.peer < 0 {
		w.live.publish(w.proc.Now(), "no partner: the number of ranks is odd")
		return w.log.report(), nil
	}
	err := w.run()
	var broken *random.Violation
	switch {
	case errors.As(err, &broken):
		w.log.violation(broken.Kind, "%s with %s: %v", w.host(), hostOf(w.peer), broken)
		err = nil
	case errors.Is(err, ErrGone):
		w.log.mark("%s is gone", hostOf(w.peer))
		err = nil
	case err != nil:
		err = fmt.Errorf("rank %d: %w", w.rank.Rank, err)
	default:
		w.log.mark("done")
	}
	return w.report(), err
}

// run runs this rank's end of the random traffic with its peer: it agrees on the MTU, from which
// both draw the same workload, and executes its side.
func (w *randomProgram) run() (err error) {
	w.live.publish(w.proc.Now(), "waiting for "+hostOf(w.peer)+" to send its MTU")
	mtu, err := w.agreeMTU()
	if err != nil {
		return err
	}
	w.work = w.workload(mtu)
	w.end, err = random.NewEnd(random.Env{
		Device: &qpRecorder{w.nic.Device, &w.live}, Peer: &peerExchange{w.rank.Control, w.peer}, GIDIndex: w.nic.GIDIndex,
		StallTimeout: w.rank.StallTimeout, Concurrent: w.rank.Concurrent, DetectPeerEnd: true, OnStep: w.sample,
	}, w.work, random.Side(w.rank.Rank%2))
	if err != nil {
		return err
	}
	expected := 0
	for i := range w.work.Conns {
		expected += w.work.Conns[i].Messages[0] // both sides send as many
	}
	w.log.samples.expect(expected)
	_, err = w.end.Run(w.proc)
	return err
}

// agreeMTU returns the smaller MTU of the two ends, which must plan the same traffic.
func (w *randomProgram) agreeMTU() (verbs.MTU, error) {
	port, err := w.nic.Device.QueryPort(1)
	if err != nil {
		return 0, err
	}
	mine := port.ActiveMTU
	if n := w.cfg.mtu(w.rank.Rank); n != 0 {
		mine = verbs.MTUFor(n)
	}
	if err := w.rank.Control.Send(w.peer, fmt.Append(nil, uint32(mine))); err != nil {
		return 0, err
	}
	wait := cmp.Or(w.rank.StallTimeout, verbs.Forever)
	b, err := w.rank.Control.Recv(w.peer, wait)
	if errors.Is(err, verbs.ErrTimeout) {
		err = &traffic.StallError{After: wait, Status: w.Status()}
	}
	if err != nil {
		return 0, err
	}
	var theirs verbs.MTU
	if _, err := fmt.Sscan(string(b), (*uint32)(&theirs)); err != nil {
		return 0, fmt.Errorf("MTU of rank %d: %w", w.peer, err)
	}
	return min(mine, theirs), nil
}

// workload returns the traffic plan, the same at both ends. The excuses of cfg are the faults of
// the network that are no violations.
func (w *randomProgram) workload(mtu verbs.MTU) *random.Workload {
	cfg := &w.cfg
	work := &random.Workload{
		Seed: traffic.Derive(w.rank.Seed, w.rank.Rank/2), CQs: 1, SharedWords: 2, Traits: w.traits,
		Network: random.Network{
			Loses: cfg.excused(ExcuseLoses), Duplicates: cfg.excused(ExcuseDuplicates),
			Reorders: cfg.excused(ExcuseReorders), GivesUp: cfg.excused(ExcuseGivesUp),
		},
	}
	if cfg.Spin {
		work.Wakeup = random.ByPolling
	}
	for _, s := range cfg.Services {
		for _, l := range w.conns(s, mtu) {
			work.Conns, w.services = append(work.Conns, l), append(w.services, s)
		}
	}
	timeout, rnr := cfg.timing(w.rank.Concurrent)
	for i := range work.Conns {
		l := &work.Conns[i]
		// PSNs start shortly before the wrap.
		l.FirstPSN = [2]uint32{1<<24 - 20 - uint32(i), 1<<24 - 200}
		l.MTU, l.Timeout, l.MinRNRTimer = mtu, timeout, rnr
		l.RetryCnt, l.RNRRetry = uint8(*cfg.Retries), uint8(*cfg.RNRRetries)
		l.SendDepth = cfg.Depth
		if cfg.Pause > 0 && l.Service.Reliable() {
			l.RecvPacing = random.Pacing{Batch: max(1, cfg.Depth/4), Pause: cfg.Pause}
		}
		if cfg.Think > 0 {
			l.SendPacing = random.Pacing{Batch: 1, Pause: cfg.Think}
		}
		l.Adapt(&w.traits)
	}
	return work
}

// conns returns the connections that the random traffic has for a service: two of half the messages
// for an SRQ, else one.
func (w *randomProgram) conns(service string, mtu verbs.MTU) []random.Conn {
	n, size := w.cfg.Messages, w.cfg.Bytes
	switch service {
	case ServiceSRQ: // two connections share one SRQ
		two := []random.Conn{random.NewConn(random.RC, n-n/2, size), random.NewConn(random.RC, n/2, size)}
		two[0].SharedReceives, two[1].SharedReceives = true, true
		return two
	case ServiceUD:
		size = min(size, mtu.Bytes())
	}
	kinds := map[string]random.Service{ServiceRC: random.RC, ServiceXRC: random.XRC, ServiceRD: random.RD, ServiceUC: random.UC, ServiceUD: random.UD}
	return []random.Conn{random.NewConn(kinds[service], n, size)}
}

// sample publishes the status and sends a sample to the launcher, unless the last one is recent.
// The first call marks that the end is connected.
func (w *randomProgram) sample() {
	now := w.proc.Now()
	if now-w.lastSample < w.byClock(simTick, realGap) && w.lastSample > 0 {
		return
	}
	if w.lastSample == 0 {
		w.log.mark("connected")
	}
	w.lastSample = max(now, 1) // 0 means none
	w.live.publish(now, w.end.Status())
	messages, bytes := w.end.Received()
	if w.log.messages == 0 && messages > 0 {
		w.log.mark("first data")
	}
	w.log.messages, w.log.bytes = messages, bytes
	w.log.sample(now)
}

// report returns the Report of this rank: a flow for each connection of the random traffic, their
// sums, and the completion errors. Without traffic it has what was logged before.
func (w *randomProgram) report() *Report {
	if w.end == nil {
		return w.log.report()
	}
	now := w.proc.Now()
	w.live.publish(now, w.end.Status())
	result := w.end.Result()
	w.log.messages, w.log.bytes = 0, 0
	var flows []Flow
	for i, l := range result.Conns {
		flows = append(flows, Flow{
			Peer: w.peer, Rail: w.nic.Rail, Service: w.services[i], Posted: l.Sent.Posted, Acked: l.Sent.Completed,
			Expected: w.work.Conns[i].Messages[1-w.rank.Rank%2], Arrived: l.Received.Delivered,
			Duplicates: l.Received.Duplicated, Reordered: l.Received.Reordered, Bytes: l.Received.Bytes,
		})
		w.log.messages += uint64(l.Received.Delivered)
		w.log.bytes += uint64(l.Received.Bytes)
		w.log.checked += l.Received.Bytes
		if l.Sent.Failed != verbs.WCSuccess {
			w.log.recordFailure(now, w.peer, w.nic.Rail, l.Sent.Failed)
		}
	}
	w.log.sendSample(now)
	r := w.log.report()
	r.Elapsed, r.Flows = result.Elapsed, flows
	return r
}

// peerExchange exchanges messages with one peer through Control.
type peerExchange struct {
	control Control
	peer    int
}

func (x *peerExchange) Send(msg []byte) error { return x.control.Send(x.peer, msg) }

func (x *peerExchange) Recv(timeout time.Duration) ([]byte, error) {
	return x.control.Recv(x.peer, timeout)
}

// qpRecorder is a device that records its queue pairs in a liveState.
type qpRecorder struct {
	verbs.Context
	live *liveState
}

// CreateQP implements verbs.Context. It records the queue pair, so that Break can move it to ERR.
func (b *qpRecorder) CreateQP(in verbs.QPInit) (verbs.QP, error) {
	q, err := b.Context.CreateQP(in)
	if err == nil {
		b.live.add(q)
	}
	return q, err
}
