package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/agent"
	"github.com/fabrictest/fabrictest/conformance"
)

// Timeouts for the agent to be reached again, the device to open or restart, and
// its addresses to return.
const (
	redialTimeout         = time.Minute
	defaultRestartTimeout = 30 * time.Second
	addrTimeout           = 30 * time.Second
)

// hostProblem returns an error if the device's host has crashed during a case.
func (d *Device) hostProblem(hung bool, outcome error) error {
	if d.opt.Host == nil {
		return nil
	}
	sign := d.agent().Err()
	if sign == nil && hung {
		sign = outcome
	}
	return d.opt.Host.Problem(sign)
}

// withHostProblem returns the outcome of a case during which the host crashed: it
// is no verdict on the device.
func withHostProblem(outcome, problem error) error {
	if outcome == nil || errors.Is(outcome, agent.ErrLost) {
		return &conformance.CrashError{Cause: problem}
	}
	return fmt.Errorf("%v; %w", outcome, &conformance.CrashError{Cause: problem}) //nolint:errorlint // no violation any more
}

// reset restarts the device, or its host if needed, and reports that by OnNote.
func (d *Device) reset(ctx context.Context, id, why string, problem error) {
	if ctx.Err() != nil {
		return // no more cases
	}
	if problem != nil {
		d.restartHost(ctx, id, problem.Error())
		return
	}
	if d.agent().Err() != nil {
		fresh, err := d.redial(ctx)
		if err != nil {
			d.fail(fmt.Errorf("the agent was lost in %s, and cannot be reached again: %w", id, err))
			return
		}
		d.setClient(fresh)
		d.opt.OnNote(fmt.Sprintf("The agent was lost in %s, and is reached again", id))
	}
	client := d.agent()
	var err error
	wedged := false
	select {
	case err = <-goCase(func() error { return client.Restart(d.name) }):
	case <-time.After(d.restartTimeout):
		// Most likely the driver has crashed.
		err, wedged = fmt.Errorf("it does not restart within %v", d.restartTimeout), true
	}
	if err == nil {
		err = d.awaitAddrs(client)
	}
	if err == nil {
		err = d.hostProblem(false, nil)
	}
	switch {
	case err == nil:
		d.opt.OnNote(fmt.Sprintf("%s was restarted after %s (%s)", d.name, id, why))
	case d.opt.Host != nil:
		d.restartHost(ctx, id, fmt.Sprintf("%s; %v", why, err))
	case wedged:
		d.fail(fmt.Errorf("%s wedged in %s (%s): %w, and its host has to be restarted", d.name, id, why, err))
	default:
		d.opt.OnNote(fmt.Sprintf("%s should be restarted after %s (%s): %v", d.name, id, why, err))
	}
}

// restartHost restarts the device's host.
func (d *Device) restartHost(ctx context.Context, id, why string) {
	why, _, _ = strings.Cut(why, "\n") // the rest is in the result of the case
	_ = d.agent().Close()              // it never fails
	fresh, err := d.opt.Host.Restart(ctx)
	if err == nil {
		d.setClient(fresh)
		err = d.awaitAddrs(fresh)
	}
	if err != nil {
		d.fail(fmt.Errorf("the host of %s was restarted after %s (%s), and its device is not available: %w", d.name, id, why, err))
		return
	}
	d.opt.OnNote(fmt.Sprintf("The host of %s was restarted after %s (%s)", d.name, id, why))
}

func (d *Device) setClient(fresh *agent.Client) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.client = fresh
}

// fail records that the device is lost for good.
func (d *Device) fail(why error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = why
}

// redial connects to the agent again.
func (d *Device) redial(ctx context.Context) (*agent.Client, error) {
	if d.opt.Redial == nil {
		return nil, errors.New("no redial function")
	}
	ctx, stop := context.WithTimeout(ctx, redialTimeout)
	defer stop()
	for {
		c, err := d.opt.Redial(ctx)
		if err == nil {
			return c, nil
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(time.Second):
		}
	}
}

// awaitAddrs waits until a restarted device has its addresses again.
func (d *Device) awaitAddrs(client *agent.Client) error {
	if d.Streams() {
		return nil // its interface was not restarted
	}
	for deadline := time.Now().Add(addrTimeout); ; time.Sleep(50 * time.Millisecond) {
		pairs, err := d.queryAddrPairs(client)
		if err == nil && len(pairs) == len(d.addrs) {
			d.addrs = pairs
			return nil
		}
		if time.Now().After(deadline) {
			return cmp.Or(err, fmt.Errorf("it has lost addresses: it had %v, and has %v", d.addrs, pairs))
		}
	}
}

// queryAddrPairs reads the GID table of the device again.
func (d *Device) queryAddrPairs(client *agent.Client) (pairs map[int]addrPair, err error) {
	dev, err := client.Open(d.name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	table, err := gidTable(dev)
	if err != nil {
		return nil, err
	}
	return d.addrPairs(table)
}
