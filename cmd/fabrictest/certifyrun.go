package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/agent"
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/deviations"
	"github.com/fabrictest/fabrictest/conformance/suites"
	"github.com/fabrictest/fabrictest/internal/regularfile"
	"github.com/fabrictest/fabrictest/lab/bench"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/report/certificate"
	"github.com/fabrictest/fabrictest/report/conform"
)

// certification is the judging of a device of another host.
type certification struct {
	opts      *certifyOptions
	seed      uint64
	host      agent.Identity
	library   string
	lab       *bench.Device
	began     time.Time
	subject   *subject
	judgement *judgement
	risky     map[string]bool // the dangerous cases, by ID
	machine   string          // that the device's host is, if it is a guest of ours
}

// protocol is what the device talks.
func (c *certification) protocol() suites.Protocol {
	if c.lab.Streams() {
		return suites.IWARP
	}
	return suites.RoCE
}

// transport is that, for people.
func (c *certification) transport() string {
	if c.lab.Streams() {
		return "iWARP"
	}
	return "RoCEv2"
}

// plan works out what is asked, or says what is wrong with how it was.
func (c *certification) plan(protocol suites.Protocol) error {
	o := c.opts
	all := suites.Of(protocol)
	for _, l := range o.Labels {
		if known := labelsOf(all); !slices.Contains(known, l) {
			return usagef("--label %s: no case has it; %s", l, didYouMean(l, known, "fabrictest conform list --json"))
		}
	}
	var none *conformance.NoCaseError
	if err := o.CheckPatterns(all...); errors.As(err, &none) {
		return noSuchCase(none.Pattern)
	}
	c.subject = &subject{provider: &nics.Provider{Name: o.device}}
	c.risky = make(map[string]bool)
	for _, s := range all {
		for _, k := range o.Select(s) {
			c.subject.asked = append(c.subject.asked, question{s, k})
			if k.Dangerous() {
				c.risky[k.ID] = true
			}
		}
	}
	if len(c.subject.asked) == 0 {
		return usagef("no case has all that is asked for by name, --level and --label, without --dangerous: 'fabrictest conform list' shows all")
	}
	var err error
	if c.subject.deviations, err = o.knownDeviations(all); err != nil {
		return err
	}
	c.judgement = &judgement{
		opts: &conformOptions{program: o.program, on: wireTier, capture: evidenceAll, workers: 1},
		seed: c.seed, subjects: []*subject{c.subject},
	}
	return nil
}

// dangerous reports whether a case may have harmed the device.
func (c *certification) dangerous(id string) bool { return c.risky[id] }

// knownDeviations reads a file, or what comes with us.
func (o *certifyOptions) knownDeviations(all []*conformance.Suite) (map[string]conformance.Deviation, error) {
	if o.deviations == "" {
		return nil, nil
	}
	b, err := regularfile.ReadFile(o.deviations, maxDeviations)
	if err != nil {
		known, ofErr := deviations.Of(o.deviations, wireTier)
		if ofErr != nil || known == nil {
			return nil, usagef("--deviations %s: it is neither a file (%w) nor the name of deviations that come with fabrictest", o.deviations, err)
		}
		return known, nil
	}
	known, err := deviations.Parse(b)
	if err != nil {
		return nil, usagef("--deviations %s: %w", o.deviations, err)
	}
	var ids []string
	for _, s := range all {
		for i := range s.Cases {
			ids = append(ids, s.Cases[i].ID)
		}
	}
	for id := range known {
		if !slices.Contains(ids, id) {
			return nil, usagef("--deviations %s: the device is judged by no case %q%s", o.deviations, id, guess(id, ids))
		}
	}
	return known.On(wireTier), nil
}

// judge runs the cases. When the agent is gone for good, nothing more can be asked.
func (c *certification) judge(ctx context.Context) (*conform.Run, error) {
	run := &conform.Run{
		Version: conform.Version, Tool: toolVersion(), Command: c.opts.command(c.opts.IDs, c.judgement.seed), Seed: c.judgement.seed,
		Started: c.began, Machine: thisMachine(), Tier: wireTier, Part: len(c.opts.IDs) > 0 || c.opts.level != "" || len(c.opts.Labels) > 0,
	}
	var err error
	if run.Documents, err = ledgerDocuments(); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	keep := func(s *subject, q question, res *conformance.Result) conform.Result {
		if c.lab.Err() != nil {
			stop()
		}
		return c.keep(s, q, res)
	}
	results, err := c.judgement.run(ctx, c.lab, c.subject, c.subject.asked, nil, keep)
	if err != nil && ctx.Err() == nil {
		return nil, err
	}
	run.Part = run.Part || len(results) < len(c.subject.asked)
	d := conform.Device{Name: c.opts.device, Title: c.transport(), Results: results}
	if d.Results == nil {
		d.Results = []conform.Result{}
	}
	run.Devices, run.Wall = []conform.Device{d}, time.Since(c.began)
	return run, nil
}

// keep makes a result of what a case left, with its packets, which prove it.
func (c *certification) keep(s *subject, q question, res *conformance.Result) conform.Result {
	j := c.judgement
	r := j.result(s, q, res)
	r.Replay = c.opts.command([]string{q.ID}, j.seed)
	r.Ladder = conform.NewLadder(res.Record, q.suite.DescribeEvent)
	name, err := j.saveCapture(s, q.ID, res.Record)
	if err != nil {
		j.show.Note(fmt.Sprintf("The packets of %s are not kept: %v", q.ID, err))
	}
	r.Capture = name
	j.show.Done(q.ID, &r)
	return r
}

// where are the words of a command line that say which device is judged.
func (o *certifyOptions) where() []string {
	if o.guest.kind != "" {
		return o.guest.words()
	}
	words := []string{"--agent " + quote(o.agent), "--key " + quote(o.key), "--device " + quote(o.device), "--interface " + quote(o.intf)}
	for _, p := range o.peers {
		words = append(words, "--peer "+quote(p))
	}
	return words
}

// command is the command line that runs these cases again.
func (o *certifyOptions) command(ids []string, seed uint64) string {
	words := []string{o.guest.calledAs(o.program) + " certify"}
	for _, id := range ids {
		words = append(words, quote(id))
	}
	words = append(words, o.where()...)
	if o.wire != "" {
		words = append(words, "--wire "+quote(o.wire))
	}
	if o.level != "" {
		words = append(words, "--level "+strings.ToLower(o.level))
	}
	for _, l := range o.Labels {
		words = append(words, "--label "+quote(l))
	}
	if o.IncludeDangerous {
		words = append(words, "--dangerous")
	}
	if o.caseTime != 0 {
		words = append(words, "--case-time "+o.caseTime.String())
	}
	if o.deviations != "" {
		words = append(words, "--deviations "+quote(o.deviations))
	}
	return strings.Join(append(words, fmt.Sprintf("--seed %d --out FOLDER", seed)), " ")
}

// identity is the device for the certificate.
func (c *certification) identity() certificate.Subject {
	id, attr := c.lab.Identity(), c.lab.Attr()
	device, _ := c.lab.Addresses()
	s := certificate.Subject{
		Device: c.opts.device, Transport: c.transport(), Driver: strings.TrimSpace(id.Driver + " " + id.DriverVersion), Firmware: id.Firmware,
		VendorID: attr.VendorID, PartID: attr.VendorPartID, GUID: fmt.Sprintf("%016x", attr.NodeGUID), Addresses: texts(device),
		Host: c.host.Hostname, Kernel: strings.TrimSpace(c.host.Kernel + " " + c.host.Arch), Library: id.Info.Provider + ", " + c.library,
	}
	if c.machine != "" {
		s.Host += ", " + c.machine
	}
	if s.Firmware == "" {
		s.Firmware = attr.FirmwareVersion
	}
	if c.host.OS != "" {
		s.Kernel += ", " + c.host.OS
	}
	if claims := conformance.CapNames(attr.Caps); claims != "" {
		s.Claims = strings.Split(claims, ", ")
	}
	if c.opts.deviations != "" {
		s.Kind = strings.TrimSuffix(filepath.Base(c.opts.deviations), ".yaml")
	}
	return s
}

// judgeIdentity is the judge for the certificate.
func (c *certification) judgeIdentity() certificate.Judge {
	_, own := c.lab.Addresses()
	wire := c.lab.Wire()
	j := certificate.Judge{
		Wire: wire.Description() + " on " + c.opts.intf, Blind: wire.Limitations(), Addresses: texts(own), Agent: c.opts.agent, Started: c.began, Ended: time.Now(),
	}
	if wire == bench.WireTCP || wire == bench.WireUDP {
		j.Wire += ", Linux " + kernelRelease()
	}
	j.Wire += fmt.Sprintf(", MTU %d", c.lab.MTU())
	return j
}

func texts(addrs []netip.Addr) (all []string) {
	for _, a := range addrs {
		all = append(all, a.String())
	}
	return all
}
