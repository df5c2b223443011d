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

// order is what the parent tells a host: first who it is, then to play a
// program, to say how much memory it has while idle, or what the other side has
// said.
type order struct {
	Identity  *identity     `json:"identity,omitempty"`
	Program   *perf.Program `json:"program,omitempty"`
	Role      perf.Role     `json:"role,omitempty"`
	Kind      string        `json:"kind,omitempty"`
	Offloaded bool          `json:"offloaded,omitempty"`
	Idle      bool          `json:"idle,omitempty"`
	Swapped   []byte        `json:"swapped,omitempty"`
}

// identity is who a host is.
type identity struct {
	Addr netip.Addr `json:"addr"`
	CPU  int        `json:"cpu"` // as in Host
}

// reply is what a host says: something for the other side, or how its program
// ended.
type reply struct {
	Swap  []byte  `json:"swap,omitempty"`
	Done  bool    `json:"done,omitempty"`
	Value float64 `json:"value,omitempty"`
	Error string  `json:"error,omitempty"`
}

// channel is the host's end of the control channel.
type channel struct {
	out     *json.Encoder
	orders  chan order
	swapped chan []byte
	failed  error // why the channels were closed
}

func newChannel(in io.Reader, out io.Writer) *channel {
	c := &channel{out: json.NewEncoder(out), orders: make(chan order), swapped: make(chan []byte, 1)}
	go c.listen(json.NewDecoder(in))
	return c
}

func (c *channel) listen(in *json.Decoder) {
	defer close(c.orders)
	defer close(c.swapped)
	for {
		var o order
		if err := in.Decode(&o); err != nil {
			c.failed = err
			return
		}
		if o.Swapped != nil {
			c.swapped <- o.Swapped
		} else {
			c.orders <- o
		}
	}
}

// Swap is that of perf.Exchange, by way of the parent.
func (c *channel) Swap(ctx context.Context, mine []byte) ([]byte, error) {
	if err := c.out.Encode(reply{Swap: mine}); err != nil {
		return nil, err
	}
	select {
	case theirs, ok := <-c.swapped:
		if !ok {
			return nil, fmt.Errorf("control channel: %w", c.failed)
		}
		return theirs, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// HostMain is what the process of a host does: what comes in from the parent on
// its standard input, until there is no more.
func HostMain() error {
	return serve(context.Background(), newChannel(os.Stdin, os.Stdout), kinds)
}

// serve does what comes in from the parent, on devices of these kinds.
func serve(ctx context.Context, c *channel, kinds map[string]kind) error {
	first, ok := <-c.orders
	switch {
	case !ok:
		return fmt.Errorf("control channel: %w", c.failed)
	case first.Identity == nil:
		return errors.New("control channel: nobody says who this host is")
	}
	if cpu := first.Identity.CPU; cpu > 0 {
		if err := bindProcess(cpu - 1); err != nil {
			return fmt.Errorf("bind to processor %d: %w", cpu-1, err)
		}
	}
	for o := range c.orders {
		r := reply{Done: true}
		var err error
		if r.Value, err = c.obey(ctx, o, kinds, first.Identity.Addr); err != nil {
			r.Error = err.Error()
		}
		if err := c.out.Encode(r); err != nil {
			return err
		}
	}
	if errors.Is(c.failed, io.EOF) {
		return nil
	}
	return c.failed
}
