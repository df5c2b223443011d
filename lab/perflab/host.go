package perflab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/internal/process"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/launch"
	"github.com/fabrictest/fabrictest/perf"
	"github.com/fabrictest/fabrictest/verbs"
)

// opener opens the device of a host, without CRC if offloaded.
type opener func(at nics.NICConfig, offloaded bool) (verbs.Context, error)

// deviceKind is a kind of device that can be measured.
type deviceKind struct {
	open    opener
	service perf.Service
}

// reliableDatagrams is the kind of datagram-iWARP devices with reliable datagrams.
const reliableDatagrams = conformance.DatagramIWARP + ", reliable"

// deviceKinds are the kinds that a host can open, by protocol.
var deviceKinds = map[conformance.Protocol]deviceKind{
	conformance.RoCE:          {deviceOpener(conformance.RoCE, nil), perf.ServiceRC},
	conformance.IWARP:         {deviceOpener(conformance.IWARP, nil), perf.ServiceIWARP},
	conformance.DatagramIWARP: {deviceOpener(conformance.DatagramIWARP, nil), perf.ServiceUD},
	reliableDatagrams:         {deviceOpener(conformance.DatagramIWARP, nics.Options{"reliable": true}), perf.ServiceRD},
}

// deviceOpener returns a function that opens emulated devices of a protocol in real time. An
// offloaded device neither computes nor checks CRCs, as if hardware did; it has no other options.
func deviceOpener(protocol conformance.Protocol, options nics.Options) opener {
	return func(at nics.NICConfig, offloaded bool) (verbs.Context, error) {
		p := nics.OfProtocol(protocol)
		setup := nics.Setup{Options: options}
		if offloaded {
			if p.CRCOption == "" {
				return nil, fmt.Errorf("%s cannot run without CRC: %w", p.Title, errors.ErrUnsupported)
			}
			setup.Options = nics.Options{p.CRCOption: false}
		}
		nicOpener, err := p.NewOpener(setup)
		if err != nil {
			return nil, err
		}
		return nicOpener.OnSockets(at)
	}
}

// settleTime is how long a host idles before its memory is measured.
const settleTime = 300 * time.Millisecond

// identity is the job that the lab process gives to a host process.
type identity struct {
	Addr netip.Addr `json:"addr"`
	CPU  int        `json:"cpu"` // as in Host
	// CableFD is the descriptor of the cable in shared memory; 0 for sockets.
	CableFD int `json:"cable,omitempty"`
}

// command is sent by the lab process to a host: a program, an idle measurement, or the end.
type command struct {
	End       bool                 `json:"end,omitempty"`
	Program   *perf.Program        `json:"program,omitempty"`
	Role      perf.Role            `json:"role,omitempty"`
	Kind      conformance.Protocol `json:"kind,omitempty"`
	Service   *perf.Service        `json:"service,omitempty"` // nil for that of the kind
	Offloaded bool                 `json:"offloaded,omitempty"`
	Idle      bool                 `json:"idle,omitempty"`
}

// reply is the result of a program or an idle measurement.
type reply struct {
	Figures perf.Figures `json:"figures,omitzero"`
	Error   string       `json:"error,omitempty"`
}

// host executes commands in a host process.
type host struct {
	addr     netip.Addr
	cableFD  int // of the cable in shared memory; 0 for sockets
	kinds    map[conformance.Protocol]deviceKind
	exchange perf.Exchange
}

// HostMain is the main function of a host process, one of two ranks that the lab process launched.
// It executes and answers the commands of the lab process, until one has End set.
func HostMain() error {
	conn, err := launch.Join()
	if err != nil {
		return err
	}
	var id identity
	if err := json.Unmarshal(conn.Job(), &id); err != nil {
		return fmt.Errorf("decode the job: %w", err)
	}
	if id.CPU > 0 { // counted from 1; 0 means that the process is not bound
		if err := process.BindToCPU(id.CPU - 1); err != nil {
			return err
		}
	}
	h := &host{addr: id.Addr, cableFD: id.CableFD, kinds: deviceKinds, exchange: exchange{conn}}
	ended := make(chan struct{})
	conn.OnCommand(func(text string) error {
		var cmd command
		if err := json.Unmarshal([]byte(text), &cmd); err != nil {
			return err
		}
		if cmd.End {
			close(ended)
			return nil
		}
		var r reply
		var err error
		if r.Figures, err = h.execute(context.Background(), cmd); err != nil {
			r.Error = err.Error()
		}
		return conn.Sample(r) // sends the reply, to processPair.handleEvent
	})
	if err := conn.Mark("ready"); err != nil {
		return err
	}
	<-ended
	return conn.Close(nil)
}

// exchange is a perf.Exchange with the other rank.
type exchange struct{ conn *launch.Conn }

// Swap implements perf.Exchange: it sends mine to the other rank and returns the message of that
// rank. It ignores the context: if the other rank fails, the lab process kills both.
func (e exchange) Swap(_ context.Context, mine []byte) ([]byte, error) {
	other := 1 - e.conn.Rank()
	if err := e.conn.Send(other, mine); err != nil {
		return nil, err
	}
	return e.conn.Recv(other, -1) // no timeout
}

// execute executes one command on a device that is opened for it. It returns the result of the
// command's program. For the command Idle, it opens an idle connection, and returns the resident
// memory of this process in MB.
func (h *host) execute(ctx context.Context, cmd command) (result perf.Figures, err error) {
	k, ok := h.kinds[cmd.Kind]
	if !ok {
		return result, fmt.Errorf("no device of kind %q", cmd.Kind)
	}
	if cmd.Service != nil {
		k.service = *cmd.Service
	}
	at := nics.NICConfig{Addr: h.addr, Cable: nics.InheritedCable(h.cableFD)}
	dev, err := k.open(at, cmd.Offloaded)
	if at.Cable != nil {
		at.Cable.Close() // a device does not use it any more
	}
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	side := &perf.Side{Role: cmd.Role, Device: dev, Service: k.service, Addr: h.addr, Exchange: h.exchange}
	switch {
	case cmd.Program != nil:
		return cmd.Program.Run(ctx, side)
	case cmd.Idle:
		err = perf.WithConnection(ctx, side, func() error {
			time.Sleep(settleTime)
			result.Value, err = perf.ResidentMB()
			return err
		})
		return result, err
	}
	return result, errors.New("empty command")
}
