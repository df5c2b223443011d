// Package deviations lists the known violations of devices, with reasons. Each device has a
// file with the cases that it fails. A deviation whose case passes is stale and must be
// removed, unless it is intermittent. Some deviations hold on one tier only, since tiers differ
// in what a device can see.
package deviations

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fabrictest/fabrictest/conformance"
)

//go:embed *.yaml
var files embed.FS

// Tiers returns the tiers that a deviation can be limited to.
func Tiers() []string { return []string{"sim", "netns", "wire"} }

// Devices returns the names of the devices with a file of deviations, NAME.yaml.
func Devices() []string {
	names, _ := fs.Glob(files, "*.yaml") // it fails only on a malformed pattern
	for i := range names {
		names[i] = strings.TrimSuffix(names[i], ".yaml")
	}
	return names
}

// Deviation describes why a device fails a case.
type Deviation struct {
	Reason string `yaml:"reason"`
	// On is the tier on which the device deviates; empty for all. It must pass on others.
	On string `yaml:"on,omitempty"`
	// Sometimes marks a deviation that depends on chance, such as the content of
	// uninitialized memory. It is not stale when the case passes.
	Sometimes bool   `yaml:"sometimes,omitempty"`
	SeenOn    string `yaml:"seen-on,omitempty"`
	Link      string `yaml:"link,omitempty"`
}

// Of returns the deviations of a device on a tier, by case ID; none for a device without a
// file.
func Of(device, tier string) (map[string]conformance.Deviation, error) {
	b, err := files.ReadFile(device + ".yaml")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	known, err := Parse(b)
	if err != nil {
		return nil, fmt.Errorf("deviations/%s.yaml: %w", device, err)
	}
	return known.On(tier), nil
}

// Known has deviations by case ID.
type Known map[string]Deviation

// Parse reads a file of known deviations. Each key is the ID of a case, and each entry has
// a reason.
func Parse(b []byte) (Known, error) {
	known := make(Known)
	dec := yaml.NewDecoder(bytes.NewReader(b))
	dec.KnownFields(true)
	if err := dec.Decode(&known); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: each key must be the ID of a case, as in 'rc/psn/gap-naked-once: {reason: …}'", err)
	}
	for id, d := range known {
		switch {
		case d.Reason == "":
			return nil, fmt.Errorf("%s: the reason is missing", id)
		case d.On != "" && !slices.Contains(Tiers(), d.On):
			return nil, fmt.Errorf("%s: on: %s is no tier: give %s, or leave it out if it holds on all", id, d.On, strings.Join(Tiers(), ", "))
		}
	}
	return known, nil
}

// On returns the deviations that hold on a tier.
func (k Known) On(tier string) map[string]conformance.Deviation {
	on := make(map[string]conformance.Deviation, len(k))
	for id, d := range k {
		if d.On != "" && d.On != tier {
			continue
		}
		reason := d.Reason
		if d.Sometimes {
			reason += " (at times)"
		}
		if d.SeenOn != "" {
			reason += fmt.Sprintf(" (seen on %s)", d.SeenOn)
		}
		if d.Link != "" {
			reason += fmt.Sprintf(" (see %s)", d.Link)
		}
		on[id] = conformance.Deviation{Reason: reason, Intermittent: d.Sometimes}
	}
	return on
}
