package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/agent"
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/judge"
	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab/bench"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/report/certificate"
	"github.com/fabrictest/fabrictest/report/conform"
)

// CertifyOptions select the device and the cases of a certification.
type CertifyOptions struct {
	Filter     conformance.Filter
	Seed       uint64
	Deviations string // a file, or the name of deviations that ship with fabrictest; empty for none
	CaseTime   time.Duration
	Wire       bench.DeviceWire // empty for the default of the device's protocol
	Device     string           // the name on its host
	// Command returns the command line that runs the cases with the given IDs.
	Command func(ids []string) string
	// Folder creates the certificate's folder, once, before the first case, and returns its path.
	Folder func() (string, error)
	// Show returns the display of progress, for a total number of cases.
	Show func(total int) *conform.Display
}

// Certification tests a device of another host on its own link.
type Certification struct {
	CertifyOptions
	judge        *judge.Judge
	device       *judge.Device
	host         agent.Identity
	agentVersion string
	lab          *bench.Device
	began        time.Time
	dangerous    map[string]bool // cases, by ID

	// The following go into the certificate.
	intf      string
	agentAddr string
	machine   string // describes the virtual machine; empty for a real host
}

// WireTier is the tier of results on the device's own link.
const WireTier = "wire"

// NewCertification returns a Certification. If the protocol of the device is known, it selects the
// cases, and returns an error if no case matches. If protocol is empty, TestDevice selects them.
func NewCertification(o CertifyOptions, protocol conformance.Protocol) (*Certification, error) {
	c := &Certification{CertifyOptions: o}
	if protocol == "" {
		return c, nil
	}
	return c, c.plan(protocol)
}

// transport returns the name that reports have for the device's protocol.
func (c *Certification) transport() string {
	if c.lab.Streams() { // the device uses TCP
		return "iWARP"
	}
	return "RoCEv2"
}

// plan selects a protocol's cases, reads the deviations, and creates the judge that runs the cases.
func (c *Certification) plan(protocol conformance.Protocol) error {
	all := judge.SuitesOf(protocol)
	if err := judge.CheckLabels("--label", c.Filter.Labels, all); err != nil {
		return err
	}
	var none *conformance.NoCaseError
	switch err := c.Filter.CheckPatterns(all...); {
	case errors.As(err, &none) && c.Filter.CheckPatterns(judge.Suites()...) == nil:
		return cli.Errorf("%s is no case for a device of this protocol (%s)", none.Pattern, protocol)
	case errors.As(err, &none):
		return judge.NoSuchCase(none.Pattern)
	case err != nil:
		return err
	}
	c.device = &judge.Device{Name: c.Device, Cases: judge.Select(&c.Filter, all)}
	c.dangerous = make(map[string]bool) // IDs of cases after which the device may not work
	for _, testCase := range c.device.Cases {
		if testCase.Dangerous() {
			c.dangerous[testCase.ID] = true
		}
	}
	if len(c.device.Cases) == 0 {
		return cli.Errorf("no case matches the names, --level and --label, or those that match need --dangerous: 'fabrictest list cases' shows all")
	}
	var err error
	if c.device.Deviations, err = c.knownDeviations(all); err != nil {
		return err
	}
	c.judge = &judge.Judge{
		Options: judge.Options{Seed: c.Seed, RealTime: true, Workers: 1, Capture: cli.CaptureAll},
		Hooks:   judge.Hooks{Replay: func(_ *judge.Device, id string) string { return c.Command([]string{id}) }},
		Devices: []*judge.Device{c.device},
	}
	return nil
}

// knownDeviations returns the deviations of the device (cases that it is expected to fail) by case
// ID. c.Deviations is a file, which may name only cases of the suites all, or the name of a list
// that ships with fabrictest. If it is empty, there are none.
func (c *Certification) knownDeviations(all []*conformance.Suite) (map[string]conformance.Deviation, error) {
	if c.Deviations == "" {
		return nil, nil
	}
	if err := cli.CheckFile(c.Deviations); err != nil {
		known, nameErr := conformance.DeviationsOf(c.Deviations, WireTier)
		if nameErr != nil || known == nil { // nil: no such list
			return nil, cli.Errorf("--deviations %s: neither a file (%w) nor the name of deviations that ship with fabrictest", c.Deviations, err)
		}
		return known, nil
	}
	return judge.ReadDeviations(c.Deviations, WireTier, all)
}

// TestDevice runs the cases on the device. client is connected to the agent at addr, the program
// that calls verbs on the device's host; TestDevice closes client, with c.lab. opt describes the device's link.
func (c *Certification) TestDevice(ctx context.Context, client *agent.Client, addr string, opt bench.DeviceOptions) (*conform.Run, error) {
	c.began, c.agentVersion, c.agentAddr, c.intf = time.Now(), client.Agent(), addr, opt.Interface
	var err error
	if c.host, err = client.Identity(); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	opt.Wire, opt.MaxTime = c.Wire, c.CaseTime
	opt.RestartAfter = func(id string) bool { return c.dangerous[id] } // the device may not work after such a case
	opt.OnNote = func(text string) { c.judge.Show.Note(text) }         // called only after a case, when c.judge is set
	if c.lab, err = bench.OnDevice(client, c.Device, opt); err != nil {
		return nil, c.permissionHint(err)
	}
	defer c.lab.Close()
	if c.judge == nil {
		if err := c.plan(c.lab.Protocol()); err != nil {
			return nil, err
		}
	}
	if err := c.ensureFolder(); err != nil {
		return nil, err
	}
	c.judge.Started = c.began
	c.judge.Show = c.Show(len(c.device.Cases))
	defer c.judge.Show.Close()
	return c.runCases(ctx)
}

// ensureFolder creates the folder of the certificate unless it exists.
func (c *Certification) ensureFolder() (err error) {
	if c.judge.Dir == "" {
		c.judge.Dir, err = c.Folder()
	}
	return err
}

// permissionHint extends a permission error by a hint: the value of --wire that needs no
// permission. It returns other errors unchanged.
func (c *Certification) permissionHint(err error) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	unprivileged := bench.WireUDP
	if c.Wire == bench.WireSegments {
		unprivileged = bench.WireTCP
	}
	return fmt.Errorf("%w; --wire %s needs no permission, but observes less", err, unprivileged)
}

// runCases runs the cases and returns their results. It stops early when ctx is cancelled or the
// agent is lost and cannot be restarted. It sets run.Part if it stopped early or with a filter:
// such a run is only a part of a certification.
func (c *Certification) runCases(ctx context.Context) (*conform.Run, error) {
	run := conform.NewRun(c.Seed, WireTier)
	run.Started, run.Command = c.began, c.Command(c.Filter.IDs)
	run.Part = len(c.Filter.IDs) > 0 || c.Filter.Level != "" || len(c.Filter.Labels) > 0
	var err error
	if run.Documents, err = judge.Documents(); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	c.judge.AfterCase = func() {
		if c.lab.Err() != nil {
			stop()
		}
	}
	results, err := c.judge.RunCases(ctx, c.lab, c.device)
	if err != nil && ctx.Err() == nil {
		return nil, err
	}
	run.Part = run.Part || len(results) < len(c.device.Cases)
	d := conform.Device{Name: c.Device, Title: c.transport(), Results: results}
	if d.Results == nil {
		d.Results = []conform.Result{} // "[]" in JSON, not "null"
	}
	run.Devices, run.Wall = []conform.Device{d}, time.Since(c.began)
	return run, nil
}

// subject returns the description of the device and its host for the certificate.
func (c *Certification) subject() certificate.Subject {
	id, attr := c.lab.Identity, c.lab.Attr
	deviceAddrs, _ := c.lab.Addresses()
	s := certificate.Subject{
		Device: c.Device, Transport: c.transport(), Driver: strings.TrimSpace(id.Driver + " " + id.DriverVersion), Firmware: id.Firmware,
		VendorID: attr.VendorID, PartID: attr.VendorPartID, GUID: fmt.Sprintf("%016x", attr.NodeGUID), Addresses: addrStrings(deviceAddrs),
		Host: c.host.Hostname, Kernel: strings.TrimSpace(c.host.Kernel + " " + c.host.Arch), Library: id.Info.Provider + ", " + c.agentVersion,
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
	if c.Deviations != "" { // lists of deviations, and their files, are named after a kind of device
		s.Kind = strings.TrimSuffix(filepath.Base(c.Deviations), ".yaml")
	}
	return s
}

// judgeIdentity describes the judge, this program that tests the device, for the certificate: its
// access to the link, and what it cannot observe there.
func (c *Certification) judgeIdentity() certificate.Judge {
	_, judgeAddrs := c.lab.Addresses()
	wire := c.lab.Wire
	j := certificate.Judge{
		Wire: wire.Description() + " on " + c.intf, Blind: wire.Limitations(), Addresses: addrStrings(judgeAddrs), Agent: c.agentAddr, Started: c.began, Ended: time.Now(),
	}
	if wire == bench.WireTCP || wire == bench.WireUDP { // sockets: the judge's kernel makes the headers
		j.Wire += ", Linux " + report.ThisMachine().Kernel
	}
	j.Wire += fmt.Sprintf(", MTU %d", c.lab.MTU)
	return j
}

// addrStrings returns addresses as strings.
func addrStrings(addrs []netip.Addr) (all []string) {
	for _, a := range addrs {
		all = append(all, a.String())
	}
	return all
}

// Certificate makes the certificate of a run, and writes it to the folder dir of the run.
func (c *Certification) Certificate(run *conform.Run) (cert *certificate.Certificate, dir string, err error) {
	if cert, err = certificate.New(run, c.subject(), c.judgeIdentity()); err != nil {
		return nil, "", err
	}
	return cert, c.judge.Dir, cert.WriteFolder(c.judge.Dir)
}

// Finish prints the summary of a run, with the paths of its files.
func (c *Certification) Finish(run *conform.Run, paths report.Paths) error {
	return c.judge.Show.Finish(run, paths)
}

// Err returns why the device was lost, or, if ctx was cancelled, an error with the number of cases
// that had ended. It returns nil after a complete run.
func (c *Certification) Err(ctx context.Context) error {
	if err := c.lab.Err(); err != nil || ctx.Err() == nil {
		return err
	}
	return fmt.Errorf("interrupted: %d of %d cases had ended", c.judge.Ended, len(c.device.Cases))
}
