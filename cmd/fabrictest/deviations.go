package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/fabrictest/fabrictest/conformance/suites"
	"github.com/fabrictest/fabrictest/lab/nics"
)

// deviation is what is known of a case that a device does not pass.
type deviation struct {
	Reason string `yaml:"reason"`
	SeenOn string `yaml:"seen-on,omitempty"`
	Link   string `yaml:"link,omitempty"`
}

// readDeviations reads a file of deviations, by case. A case that the device is not
// judged by is a mistake, and so is a deviation without a reason.
func readDeviations(file string, p *nics.Provider) (map[string]string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, usagef("--deviations: %w", err)
	}
	known := make(map[string]deviation)
	dec := yaml.NewDecoder(bytes.NewReader(b))
	dec.KnownFields(true)
	if err := dec.Decode(&known); err != nil {
		return nil, usagef("--deviations %s: %w: it has a case a key, as in 'rc/psn/gap-naked-once: {reason: …}'", file, err)
	}
	var ids []string
	for _, s := range suites.Of(protocols[p.Name]) {
		for i := range s.Cases {
			ids = append(ids, s.Cases[i].ID)
		}
	}
	reasons := make(map[string]string, len(known))
	for id, d := range known {
		switch {
		case !slices.Contains(ids, id):
			return nil, usagef("--deviations %s: %s is judged by no case %q%s", file, p.Name, id, guess(id, ids))
		case d.Reason == "":
			return nil, usagef("--deviations %s: %s: a deviation has a reason", file, id)
		}
		reasons[id] = d.Reason
		if d.SeenOn != "" {
			reasons[id] += fmt.Sprintf(" (seen on %s)", d.SeenOn)
		}
	}
	return reasons, nil
}
