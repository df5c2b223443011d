package perflab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"time"

	"github.com/fabrictest/fabrictest/launch"
	"github.com/fabrictest/fabrictest/perf"
)

// Host is one of the two hosts.
type Host struct {
	// Name is used in errors.
	Name string
	// NetNS is the descriptor of the network namespace.
	NetNS int
	// Cable, if not nil, is the cable in shared memory that connects the hosts.
	Cable *os.File
	Addr  netip.Addr
	// CPU is the CPU of the host, counted from 1; 0 for any.
	CPU int
	// Start starts a process in the host.
	Start func(*exec.Cmd) error
}

// endTimeout is how long the processes may take to end.
const endTimeout = 10 * time.Second

// processPair are the processes of both hosts: the ranks of a group.
type processPair struct {
	group   *launch.Group
	ready   chan int // ranks that accept commands
	ended   chan int // ranks whose process has ended
	replies chan hostReply
}

type hostReply struct {
	side int
	reply
	err error
}

// startProcesses starts the program args in both hosts, and returns when both accept commands.
func startProcesses(hosts [2]Host, args []string, stderr io.Writer) (*processPair, error) {
	p := &processPair{
		ready: make(chan int, len(hosts)),
		ended: make(chan int, len(hosts)),
		// In runBoth each host can add two: the reply of the process, and an error of send.
		replies: make(chan hostReply, 2*len(hosts)),
	}
	var specs []launch.Spec
	for i, h := range hosts {
		cmd, id := launch.Command{Path: args[0], Args: args[1:]}, identity{Addr: h.Addr, CPU: h.CPU}
		if h.Cable != nil {
			cmd.Files, id.CableFD = []*os.File{h.Cable}, launch.FirstFile
		}
		job, err := json.Marshal(id)
		if err != nil {
			return nil, err
		}
		specs = append(specs, launch.Spec{Rank: i, Host: h.Name, Cmd: cmd, Start: h.Start, Job: job})
	}
	var err error
	// Heartbeats would disturb a measurement. KeepGoing: runBoth, not the group, kills after errors.
	p.group, err = launch.Start(context.Background(), specs, launch.Options{Heartbeat: -1, KeepGoing: true, Output: stderr, OnEvent: p.handleEvent})
	if err != nil {
		return nil, err
	}
	for range hosts {
		select {
		case <-p.ready:
		case side := <-p.ended: // the other process would wait for commands
			p.kill()
			outcomes, _ := p.group.Wait() // the outcomes have the errors
			return nil, endError(&outcomes[side])
		}
	}
	return p, nil
}

// handleEvent handles an event of the group: a process is ready, or has replied to a command.
func (p *processPair) handleEvent(e launch.Event) {
	switch e.Kind {
	case launch.Marked:
		p.ready <- e.Rank
	case launch.Sampled:
		r := hostReply{side: e.Rank}
		r.err = json.Unmarshal(e.Sample, &r.reply)
		p.replies <- r
	case launch.Ended:
		p.ended <- e.Rank
	}
}

// endError returns the error for a process that ended too early.
func endError(o *launch.Outcome) error {
	return fmt.Errorf("%s has ended: %s %s", o.Host, o.State, o.Error)
}

// stop sends both processes the command to end, and waits for them. It kills them if one does not
// take the command. It returns the error of a process that has failed.
func (p *processPair) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	for side := range p.group.Size() {
		if err := p.send(ctx, side, command{End: true}); err != nil {
			p.kill()
		}
	}
	_, err := p.group.Wait()
	return err
}

// kill kills both processes.
func (p *processPair) kill() {
	for side := range p.group.Size() {
		_ = p.group.Kill(side) // the process may have ended
	}
}

// send sends a command to one of the processes, and returns when that process has executed it.
func (p *processPair) send(ctx context.Context, side int, cmd command) error {
	text, err := json.Marshal(cmd)
	if err != nil {
		return err
	}
	return p.group.SendCommand(ctx, side, string(text))
}

// runBoth sends both processes a command, and returns the client's result when both are done. After
// an error of either it kills both, so that they cannot be used again.
func (p *processPair) runBoth(ctx context.Context, cmd command) (result perf.Figures, err error) {
	for side := range p.group.Size() {
		cmd := cmd
		cmd.Role = perf.Role(side)
		go func() {
			if err := p.send(ctx, side, cmd); err != nil {
				p.replies <- hostReply{side: side, err: err}
			}
		}()
	}
	for range p.group.Size() {
		r := <-p.replies
		if r.err == nil && r.Error == "" {
			if perf.Role(r.side) == perf.Client {
				result = r.Figures
			}
			continue
		}
		p.kill()
		outcomes, _ := p.group.Wait() // the outcomes have the errors
		outcome := outcomes[r.side]
		switch {
		case ctx.Err() != nil:
			return result, errors.Join(ctx.Err(), context.Cause(ctx)) // the cause may name a signal
		case errors.Is(r.err, launch.ErrEnded):
			return result, endError(&outcome)
		case r.err != nil:
			return result, r.err
		}
		return result, fmt.Errorf("%s: %s", outcome.Host, r.Error)
	}
	return result, nil
}
