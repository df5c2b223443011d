package perflab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"

	"github.com/fabrictest/fabrictest/perf"
)

// command is sent by the parent to a host: first its identity, then a program or an
// idle measurement, or Swap data of the other host.
type command struct {
	Identity  *identity     `json:"identity,omitempty"`
	Program   *perf.Program `json:"program,omitempty"`
	Role      perf.Role     `json:"role,omitempty"`
	Kind      string        `json:"kind,omitempty"`
	Offloaded bool          `json:"offloaded,omitempty"`
	Idle      bool          `json:"idle,omitempty"`
	Swapped   []byte        `json:"swapped,omitempty"`
}

type identity struct {
	Addr netip.Addr `json:"addr"`
	CPU  int        `json:"cpu"` // as in Host
}

// reply is sent by a host: Swap data for the other host, or the result of a
// command.
type reply struct {
	Swap  []byte  `json:"swap,omitempty"`
	Done  bool    `json:"done,omitempty"`
	Value float64 `json:"value,omitempty"`
	Error string  `json:"error,omitempty"`
}

// controlChannel is the host's end of the control channel.
type controlChannel struct {
	out      *json.Encoder
	commands chan command
	swapped  chan []byte
	err      error // why the channels were closed
}

func newControlChannel(in io.Reader, out io.Writer) *controlChannel {
	c := &controlChannel{out: json.NewEncoder(out), commands: make(chan command), swapped: make(chan []byte, 1)}
	go c.readCommands(json.NewDecoder(in))
	return c
}

func (c *controlChannel) readCommands(in *json.Decoder) {
	defer close(c.commands)
	defer close(c.swapped)
	for {
		var cmd command
		if err := in.Decode(&cmd); err != nil {
			c.err = err
			return
		}
		if cmd.Swapped != nil {
			c.swapped <- cmd.Swapped
		} else {
			c.commands <- cmd
		}
	}
}

// Swap implements perf.Exchange through the parent.
func (c *controlChannel) Swap(ctx context.Context, mine []byte) ([]byte, error) {
	if err := c.out.Encode(reply{Swap: mine}); err != nil {
		return nil, err
	}
	select {
	case theirs, ok := <-c.swapped:
		if !ok {
			return nil, fmt.Errorf("control channel: %w", c.err)
		}
		return theirs, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// HostMain is the main function of a host process: it executes the commands from
// its standard input.
func HostMain() error {
	return serve(context.Background(), newControlChannel(os.Stdin, os.Stdout), deviceKinds)
}

// serve executes commands until the control channel closes.
func serve(ctx context.Context, c *controlChannel, kinds map[string]deviceKind) error {
	first, ok := <-c.commands
	switch {
	case !ok:
		return fmt.Errorf("control channel: %w", c.err)
	case first.Identity == nil:
		return errors.New("control channel: the first command has no identity")
	}
	if cpu := first.Identity.CPU; cpu > 0 {
		if err := bindProcess(cpu - 1); err != nil {
			return fmt.Errorf("bind to CPU %d: %w", cpu-1, err)
		}
	}
	for cmd := range c.commands {
		r := reply{Done: true}
		var err error
		if r.Value, err = c.execute(ctx, cmd, kinds, first.Identity.Addr); err != nil {
			r.Error = err.Error()
		}
		if err := c.out.Encode(r); err != nil {
			return err
		}
	}
	if errors.Is(c.err, io.EOF) {
		return nil
	}
	return c.err
}
