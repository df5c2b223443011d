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

// How long the agent's host may take to be reached again, the device to be opened or
// restarted, and its addresses to come back.
const (
	hostPatience    = time.Minute
	restartPatience = 30 * time.Second
	devicePatience  = 30 * time.Second
)

// trouble is what has become of the device's host, as far as that is seen from outside, after
// a case that has ended so.
func (d *Device) trouble(hung bool, outcome error) error {
	if d.opt.Host == nil {
		return nil
	}
	sign := d.agent().Err()
	if sign == nil && hung {
		sign = outcome
	}
	return d.opt.Host.Trouble(sign)
}

// troubled is what is said of a case during which the device's host was in trouble: nothing
// of what the case itself found can be trusted.
func troubled(outcome, trouble error) error {
	if outcome == nil || errors.Is(outcome, agent.ErrLost) {
		return &conformance.CrashError{Cause: trouble}
	}
	return fmt.Errorf("%v; %w", outcome, &conformance.CrashError{Cause: trouble}) //nolint:errorlint // no violation any more
}

// renew has the device be as new after something happened to it, and tells of it.
func (d *Device) renew(ctx context.Context, id, why string, trouble error) {
	if ctx.Err() != nil {
		return // nothing more will be asked
	}
	if trouble != nil {
		d.restartHost(ctx, id, trouble.Error())
		return
	}
	if d.agent().Err() != nil {
		fresh, err := d.redial(ctx)
		if err != nil {
			d.lose(fmt.Errorf("the agent was lost in %s, and is not reached again: %w", id, err))
			return
		}
		d.replace(fresh)
		d.opt.Note(fmt.Sprintf("The agent was lost in %s, and is reached again", id))
	}
	client := d.agent()
	var err error
	wedged := false
	select {
	case err = <-start(func() error { return client.Restart(d.name) }):
	case <-time.After(d.restarting):
		// Most likely the driver has crashed, and the kernel waits for it.
		err, wedged = fmt.Errorf("it does not restart within %v", d.restarting), true
	}
	if err == nil {
		err = d.awaitAddrs(client)
	}
	if err == nil {
		err = d.trouble(false, nil)
	}
	switch {
	case err == nil:
		d.opt.Note(fmt.Sprintf("%s was restarted after %s (%s)", d.name, id, why))
	case d.opt.Host != nil:
		d.restartHost(ctx, id, fmt.Sprintf("%s; %v", why, err))
	case wedged:
		d.lose(fmt.Errorf("%s wedged in %s (%s): %w, and its host has to be restarted", d.name, id, why, err))
	default:
		d.opt.Note(fmt.Sprintf("%s should be restarted after %s (%s): %v", d.name, id, why, err))
	}
}

// restartHost switches the device's host off and on.
func (d *Device) restartHost(ctx context.Context, id, why string) {
	why, _, _ = strings.Cut(why, "\n") // what follows is for the result of the case
	_ = d.agent().Close()              // it never fails
	fresh, err := d.opt.Host.Restart(ctx)
	if err == nil {
		d.replace(fresh)
		err = d.awaitAddrs(fresh)
	}
	if err != nil {
		d.lose(fmt.Errorf("the host of %s was switched off and on after %s (%s), and the device is not to be had again: %w", d.name, id, why, err))
		return
	}
	d.opt.Note(fmt.Sprintf("The host of %s was switched off and on after %s (%s)", d.name, id, why))
}

// replace has another connection to the agent be the one.
func (d *Device) replace(fresh *agent.Client) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.client = fresh
}

// lose notes that there is no device any more.
func (d *Device) lose(why error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gone = why
}

// redial reaches the agent again.
func (d *Device) redial(ctx context.Context) (*agent.Client, error) {
	if d.opt.Redial == nil {
		return nil, errors.New("nobody says how")
	}
	ctx, stop := context.WithTimeout(ctx, hostPatience)
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

// awaitAddrs returns when a device that was restarted has the addresses that it had.
func (d *Device) awaitAddrs(client *agent.Client) error {
	if d.Streams() {
		return nil // its interface was not restarted
	}
	for deadline := time.Now().Add(devicePatience); ; time.Sleep(50 * time.Millisecond) {
		met, err := d.meet(client)
		if err == nil && len(met) == len(d.met) {
			d.met = met
			return nil
		}
		if time.Now().After(deadline) {
			return cmp.Or(err, fmt.Errorf("it has lost addresses: it had %v, and has %v", d.met, met))
		}
	}
}

func (d *Device) meet(client *agent.Client) (met map[int]ends, err error) {
	dev, err := client.Open(d.name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	table, err := gidTable(dev)
	if err != nil {
		return nil, err
	}
	return d.meetAt(table)
}
