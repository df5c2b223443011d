package perflab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os/exec"

	"github.com/fabrictest/fabrictest/perf"
)

// Host is one of the two hosts.
type Host struct {
	// Name is used in errors.
	Name string
	// NetNS is the descriptor of the network namespace.
	NetNS int
	Addr  netip.Addr
	// CPU is the CPU of the host, counted from 1; 0 for any.
	CPU int
	// Start starts a process in the host.
	Start func(*exec.Cmd) error
}

// process is the process of a host, as its parent uses it.
type process struct {
	host Host
	cmd  *exec.Cmd
	in   io.WriteCloser
	to   *json.Encoder
	from *json.Decoder
}

// start starts the process of a host and sends its identity.
func start(h Host, args []string, stderr io.Writer) (*process, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stderr = stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := h.Start(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", h.Name, err)
	}
	p := &process{host: h, cmd: cmd, in: in, to: json.NewEncoder(in), from: json.NewDecoder(out)}
	if err := p.to.Encode(command{Identity: &identity{Addr: h.Addr, CPU: h.CPU}}); err != nil {
		p.kill()
		return nil, fmt.Errorf("%s: %w", h.Name, errors.Join(err, p.stop()))
	}
	return p, nil
}

// stop closes the control channel, at which the process ends.
func (p *process) stop() error {
	_ = p.in.Close()
	return p.cmd.Wait()
}

func (p *process) kill() { _ = p.cmd.Process.Kill() }

// processPair are the processes of both hosts.
type processPair [2]*process

// runBoth sends both processes a command, exchanges their Swap data, and returns
// the client's value when both are done. After an error the processes cannot be
// used again.
func (h *processPair) runBoth(ctx context.Context, cmd command) (float64, error) {
	stop := context.AfterFunc(ctx, h.kill)
	defer stop()
	type hostReply struct {
		side int
		r    reply
		err  error
	}
	from := make(chan hostReply)
	quit := make(chan struct{})
	defer close(quit)
	for i, p := range h {
		cmd.Role = perf.Role(i)
		if err := p.to.Encode(cmd); err != nil {
			return 0, fmt.Errorf("%s: %w", p.host.Name, err)
		}
	}
	readReplies := func(i int) {
		for {
			t := hostReply{side: i}
			t.err = h[i].from.Decode(&t.r)
			select {
			case from <- t:
			case <-quit:
				return
			}
			if t.err != nil || t.r.Done {
				return
			}
		}
	}
	go readReplies(0)
	go readReplies(1)
	var swaps [2][]byte
	var value float64
	for running := 2; running > 0; {
		t := <-from
		switch {
		case t.err != nil:
			h.kill()
			return 0, errors.Join(ctx.Err(), fmt.Errorf("%s has ended: %w", h[t.side].host.Name, t.err))
		case t.r.Error != "":
			h.kill()
			return 0, fmt.Errorf("%s: %s", h[t.side].host.Name, t.r.Error)
		case t.r.Done:
			if running--; perf.Role(t.side) == perf.Client {
				value = t.r.Value
			}
			continue
		}
		swaps[t.side] = t.r.Swap
		if swaps[0] == nil || swaps[1] == nil {
			continue
		}
		for i, p := range h {
			if err := p.to.Encode(command{Swapped: swaps[1-i]}); err != nil {
				return 0, fmt.Errorf("%s: %w", p.host.Name, err)
			}
		}
		swaps = [2][]byte{}
	}
	return value, nil
}

func (h *processPair) kill() {
	for _, p := range h {
		p.kill()
	}
}
