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

// Host is where one of the two processes runs.
type Host struct {
	// Name is for errors.
	Name string
	// NetNS is the descriptor of the host's network namespace.
	NetNS int
	Addr  netip.Addr
	// CPU is the processor, counted from 1, that the host has to itself; 0 if it
	// takes any.
	CPU int
	// Start starts a process in the host.
	Start func(*exec.Cmd) error
}

// process is a host's process, seen from its parent.
type process struct {
	host Host
	cmd  *exec.Cmd
	in   io.WriteCloser
	to   *json.Encoder
	from *json.Decoder
}

// start starts a host's process and tells it who it is.
func start(h Host, command []string, stderr io.Writer) (*process, error) {
	cmd := exec.Command(command[0], command[1:]...)
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
	if err := p.to.Encode(order{Identity: &identity{Addr: h.Addr, CPU: h.CPU}}); err != nil {
		p.kill()
		return nil, fmt.Errorf("%s: %w", h.Name, errors.Join(err, p.stop()))
	}
	return p, nil
}

// stop ends the process: it goes when its channel closes.
func (p *process) stop() error {
	_ = p.in.Close()
	return p.cmd.Wait()
}

// kill ends it at once.
func (p *process) kill() { _ = p.cmd.Process.Kill() }

// pair are the two processes, and what they say to each other.
type pair [2]*process

// do gives both an order and returns the client's value when both have obeyed.
// If that fails, neither may be used any more.
func (h *pair) do(ctx context.Context, o order) (float64, error) {
	stop := context.AfterFunc(ctx, h.kill)
	defer stop()
	type told struct {
		side int
		r    reply
		err  error
	}
	from := make(chan told)
	quit := make(chan struct{})
	defer close(quit)
	for i, p := range h {
		o.Role = perf.Role(i)
		if err := p.to.Encode(o); err != nil {
			return 0, fmt.Errorf("%s: %w", p.host.Name, err)
		}
	}
	hear := func(i int) {
		for {
			t := told{side: i}
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
	go hear(0)
	go hear(1)
	var swaps [2][]byte
	var value float64
	for left := 2; left > 0; {
		t := <-from
		switch {
		case t.err != nil:
			h.kill()
			return 0, errors.Join(ctx.Err(), fmt.Errorf("%s has ended: %w", h[t.side].host.Name, t.err))
		case t.r.Error != "":
			h.kill()
			return 0, fmt.Errorf("%s: %s", h[t.side].host.Name, t.r.Error)
		case t.r.Done:
			if left--; perf.Role(t.side) == perf.Client {
				value = t.r.Value
			}
			continue
		}
		swaps[t.side] = t.r.Swap
		if swaps[0] == nil || swaps[1] == nil {
			continue
		}
		for i, p := range h {
			if err := p.to.Encode(order{Swapped: swaps[1-i]}); err != nil {
				return 0, fmt.Errorf("%s: %w", p.host.Name, err)
			}
		}
		swaps = [2][]byte{}
	}
	return value, nil
}

func (h *pair) kill() {
	for _, p := range h {
		p.kill()
	}
}
