package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Tiers returns the tiers that a deviation can be limited to, from the simulator to a real wire.
func Tiers() []string { return []string{"sim", "netns", "wire"} }

// KnownDeviation is a known violation: why a device fails a case. It is stale, and must be
// removed, when the case passes.
type KnownDeviation struct {
	Reason string `yaml:"reason"`
	// On is the tier on which the device deviates; empty for all. It must pass on others.
	On string `yaml:"on,omitempty"`
	// Sometimes marks a deviation that depends on chance, such as the content of
	// uninitialized memory. It is not stale when the case passes.
	Sometimes bool   `yaml:"sometimes,omitempty"`
	SeenOn    string `yaml:"seen-on,omitempty"`
	Link      string `yaml:"link,omitempty"`
}

// DeviationsOf returns, by case ID, the known deviations of a device on a tier: sim, netns or wire.
// It returns none for a device without a file in ledger/deviations.
func DeviationsOf(device, tier string) (map[string]Deviation, error) {
	b, err := ledgerFiles.ReadFile("ledger/deviations/" + device + ".yaml")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	known, err := ParseDeviations(b)
	if err != nil {
		return nil, fmt.Errorf("deviations/%s.yaml: %w", device, err)
	}
	return known.On(tier), nil
}

// KnownDeviations are the known deviations of a device, by case ID.
type KnownDeviations map[string]KnownDeviation

// ParseDeviations reads a file of known deviations. Each key is a case ID; each entry has a reason.
func ParseDeviations(b []byte) (KnownDeviations, error) {
	known := make(KnownDeviations)
	dec := yaml.NewDecoder(bytes.NewReader(b))
	dec.KnownFields(true)
	if err := dec.Decode(&known); err != nil && !errors.Is(err, io.EOF) { // io.EOF: an empty file
		return nil, fmt.Errorf("%w: each key must be the ID of a case, as in 'rc/psn/gap-naked-once: {reason: …}'", err)
	}
	for id, d := range known {
		switch {
		case d.Reason == "":
			return nil, fmt.Errorf("%s: the key \"reason\" is missing", id)
		case d.On != "" && !slices.Contains(Tiers(), d.On):
			return nil, fmt.Errorf("%s: the key \"on\" must be one of %s, not %q; leave it out if the device deviates on all", id, strings.Join(Tiers(), ", "), d.On)
		}
	}
	return known, nil
}

// On returns the deviations that a device has on a tier (sim, netns or wire), by case ID.
func (k KnownDeviations) On(tier string) map[string]Deviation {
	deviations := make(map[string]Deviation, len(k))
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
		deviations[id] = Deviation{Reason: reason, Intermittent: d.Sometimes}
	}
	return deviations
}
