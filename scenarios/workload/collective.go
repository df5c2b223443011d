package workload

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/coll"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/mpi/work"
	"github.com/fabrictest/fabrictest/traffic"
)

// PeerLost is the status of the Failure of a rank whose collective operations end because the runtime cannot reach
// another rank.
const PeerLost = "peer lost"

// collectiveProgram performs collective operations of the multi-rank runtime.
type collectiveProgram struct {
	*env
	done    int // operations
	pending atomic.Pointer[func() string]
}

// Run performs the operations. A rank that is lost, and wrong data, are in the report, and are no errors of this rank.
func (p *collectiveProgram) Run() (*Report, error) {
	p.log = newEventLog(p.rank)
	p.log.samples.expect(p.operations())
	p.log.requestPosted(p.proc.Now())
	err := mpi.Run(p.runtimeEnv(), p.options(), p.perform)
	now := p.proc.Now()
	var wrong *work.VerificationError
	switch {
	case errors.As(err, &wrong):
		p.log.violation(traffic.Contents, "%v", wrong)
		err = nil
	case errors.Is(err, mpi.ErrPeerLost):
		p.log.addFailure(Failure{At: now, Peer: noRank, Status: PeerLost})
		p.log.mark("%v", err)
		err = nil
	case err == nil:
		p.log.mark("done")
	}
	p.log.last = now
	p.log.sendSample(now)
	return p.report(), err
}

// noRank is the peer of a failure that is not of one peer.
const noRank = -1

// perform runs the operations as a rank of the runtime.
func (p *collectiveProgram) perform(w *mpi.World) error {
	p.log.mark("connected")
	program, err := work.Find(work.CollectiveName)
	if err != nil {
		return err
	}
	params := p.cfg.collectiveParams()
	params.Seed, params.Collective.OnOperation = p.rank.Seed, p.operationDone
	_, err = program.Run(w, params)
	return err
}

// operationDone notes that an operation has completed, and that this rank has compared some bytes of its result.
func (p *collectiveProgram) operationDone(compared int) {
	p.now = p.proc.Now()
	p.done++
	p.log.checked += int64(compared)
	p.log.messagesArrived(p.now, 1, compared)
	p.log.sample(p.now)
	p.live.publish(p.now, fmt.Sprintf("%d of %d operations", p.done, p.operations()))
}

// operations is the number of operations to perform.
func (p *collectiveProgram) operations() int {
	if p.cfg.Operation != "" {
		return p.cfg.Messages
	}
	return p.cfg.Messages * int(coll.NumOps)
}

// report returns the report, in which each operation is a message of every other rank, with its share of the result.
func (p *collectiveProgram) report() *Report {
	r := p.log.report()
	for peer := range p.cfg.Ranks {
		if peer != p.rank.Rank {
			r.Flows = append(r.Flows, Flow{Peer: peer, Expected: p.operations(), Arrived: p.done, Bytes: int64(p.log.bytes) / int64(p.cfg.Ranks-1)})
		}
	}
	return r
}

// Status returns how many operations have completed, and what the runtime waits for.
func (p *collectiveProgram) Status() string {
	s := p.env.Status()
	if pending := p.pending.Load(); pending != nil {
		s += "\n  " + (*pending)()
	}
	return s
}

// collectiveParams returns the parameters of the operations.
func (c *Config) collectiveParams() work.Params {
	return work.Params{Iterations: c.Messages, Bytes: c.Bytes, Compute: c.Think, Collective: work.Collective{Operation: c.Operation}}
}

// options returns the options of the runtime; the configuration is valid.
func (p *collectiveProgram) options() (o mpi.Options) {
	_ = o.Collectives.UnmarshalText([]byte(p.cfg.Collectives))
	o.Carrier.AckTimeout = p.cfg.Timeout
	return o
}

// runtimeEnv returns the environment of the runtime.
func (p *collectiveProgram) runtimeEnv() *transport.Env {
	r := p.rank
	e := &transport.Env{
		Rank: r.Rank, Size: r.Size, Seed: r.Seed, Proc: r.Proc, Control: runtimeControl{r.Control}, Go: r.Go, Concurrent: r.Concurrent,
		OnDump: func(describe func() string) { p.pending.Store(&describe) },
	}
	for host := range r.Size { // one rank each
		e.Nodes = append(e.Nodes, host)
	}
	for _, nic := range r.NICs {
		e.NICs = append(e.NICs, transport.NIC{Device: &qpRecorder{nic.Device, &p.live}, Addr: nic.Addr, GIDIndex: nic.GIDIndex})
	}
	return e
}

// runtimeControl is a Control for the runtime.
type runtimeControl struct{ Control }

// Abort implements transport.Control. The runtime ends the rank that aborts, which this program never does.
func (runtimeControl) Abort(int, string) {}

// collective checks the keys of a collective workload.
func (v *validator) collective(ranks int) {
	c := v.cfg
	if c.Kind != Collective {
		v.check(c.Operation == "", "operation", "it is of %s", Collective)
		v.check(c.Collectives == "", "collectives", "they are of %s", Collective)
		return
	}
	var choices coll.Choices
	if err := choices.UnmarshalText([]byte(c.Collectives)); err != nil {
		v.bad("collectives", "%v", err)
	}
	program, err := work.Find(work.CollectiveName)
	if err == nil {
		err = program.Check(ranks, c.collectiveParams())
	}
	v.check(err == nil, "operation", "%v", err)
	const longest = 10 * time.Second
	v.check(c.Timeout <= longest, "timeout", "%v is more than %v", c.Timeout, longest)
}
