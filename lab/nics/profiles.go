package nics

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/fabrictest/fabrictest/verbs"
)

// Profile has the known defects and missing capabilities of a real device. An
// emulated NIC with a profile behaves on the wire as that device.
type Profile struct {
	Name, Title string
	// Provider is the provider whose NICs can have the profile. The registry sets it.
	Provider     string
	Defects      []string
	Restrictions Restrictions
}

// Profiles returns the profiles of all providers.
func Profiles() (profiles []Profile) {
	for _, p := range providers() {
		profiles = append(profiles, p.Profiles...)
	}
	return profiles
}

// ProfileNames returns the names of all profiles.
func ProfileNames() (names []string) {
	for _, p := range Profiles() {
		names = append(names, p.Name)
	}
	return names
}

// FindProfile returns a profile by its name.
func FindProfile(name string) (*Profile, error) {
	for _, p := range Profiles() {
		if p.Name == name {
			return &p, nil
		}
	}
	return nil, fmt.Errorf("no profile %q: there are %s", name, strings.Join(ProfileNames(), ", "))
}

// Restrictions are the capabilities that a device lacks compared to its provider.
// Cases that need them are not run.
type Restrictions struct {
	// MissingCaps are the capabilities that the device does not claim.
	MissingCaps verbs.Caps
	// PKeys is the P_Key table; empty for the default.
	PKeys []uint16
	// Options are those of the device that differ from the defaults.
	Options Options
}

// Apply returns device d without the capabilities r.MissingCaps.
func (r Restrictions) Apply(d verbs.Context) verbs.Context {
	if r.MissingCaps == 0 {
		return d
	}
	return &restrictedDevice{d, r.MissingCaps}
}

// restrictedDevice is a device that does not claim the capabilities missing.
type restrictedDevice struct {
	verbs.Context
	missing verbs.Caps
}

// QueryDevice implements verbs.Context. It leaves out the missing capabilities.
func (d *restrictedDevice) QueryDevice() (verbs.DeviceAttr, error) {
	attr, err := d.Context.QueryDevice()
	attr.Caps &^= d.missing
	return attr, err
}

// Options are settings of NICs by name, for example {"markers": true}. Each provider has
// options of its own.
type Options map[string]any

// OptionError says that a provider does not have an option.
type OptionError struct {
	Provider *Provider
	Option   string
}

// Error implements error.
func (e *OptionError) Error() string {
	return fmt.Sprintf("%s has no option %s; it has %s", e.Provider.Title, e.Option, strings.Join(e.Provider.Options, ", "))
}

// decode returns the options of provider p as a struct: defaults, overwritten by options, which are
// named by the JSON names of the fields. An option that p does not have is an *OptionError.
func decode[T any](p *Provider, options Options, defaults T) (T, error) {
	for name := range options {
		if !slices.Contains(p.Options, name) {
			return defaults, &OptionError{Provider: p, Option: name}
		}
	}
	text, err := json.Marshal(options)
	if err == nil {
		err = json.Unmarshal(text, &defaults)
	}
	if err != nil {
		return defaults, fmt.Errorf("options of %s: %w", p.Title, err)
	}
	return defaults, nil
}

// WriteDefects prints the defects of each provider, those of several providers first. Mutants,
// which are changes of the source code, follow the defects that are settings.
func WriteDefects(w io.Writer) error {
	all := AllDefects()
	const runtimeDefects, mutants = false, true
	list := func(title string, isMutant bool, listed func(Defect) bool) error {
		defects := slices.DeleteFunc(slices.Clone(all), func(d Defect) bool { return d.Mutant != isMutant || !listed(d) })
		if len(defects) == 0 {
			return nil
		}
		if isMutant {
			title += ", built from the sources, for conform only"
		}
		return writeDefects(w, title, defects)
	}
	shared := func(d Defect) bool { return len(d.Of) > 1 }
	if err := errors.Join(list("Of several kinds of NICs", runtimeDefects, shared), list("\nOf several kinds of NICs", mutants, shared)); err != nil {
		return err
	}
	for _, p := range All() {
		onlyOfP := func(d Defect) bool { return !shared(d) && d.Of[0] == p.Name }
		title := fmt.Sprintf("\nOf %s NICs (%s)", p.Title, p.Name)
		if err := errors.Join(list(title, runtimeDefects, onlyOfP), list(title, mutants, onlyOfP)); err != nil {
			return err
		}
	}
	return nil
}

// writeDefects prints a title and a table of defects: the name, the devices that the defect
// imitates ("-" for none), and what it does.
func writeDefects(w io.Writer, title string, defects []Defect) error {
	if _, err := fmt.Fprintln(w, title+":"); err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, d := range defects {
		imitates := d.Imitates
		if imitates == "" {
			imitates = "-"
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\n", d.Name, imitates, d.Does)
	}
	return t.Flush()
}
