//go:build long

package simulation

import "testing"

// The hit rate that the picker expects is the one that servers report and have, whatever their engine, tokenizer and page, after a minute
// of traffic. The page does not tell our hits from those of another replica, which matters where most prompts are lost.
func TestPickerExpectsWhatServersKeep(t *testing.T) {
	t.Parallel()
	for _, k := range []kept{
		{"blocks of 16, by usage", 2.5, smallBlocks, byUsage, 1, 0, 0, 0},
		{"blocks of 16, by page", 6, smallBlocks, byPage, 1, restarted, 0, 0},
		{"blocks of 16, by usage, two replicas", 6, smallBlocks, byUsage, 2, restarted, 0, 0},
		{"blocks of 16, by page, two replicas", 4.4, smallBlocks, byPage, 2, 0, 0, 0},
		{"blocks of 128, by usage", 4.4, largeBlocks, byUsage, 1, restarted, 0, 0},
		{"blocks of 128, by page", 2.5, largeBlocks, byPage, 1, 0, 0, 0},
		{"blocks of 128, by usage, two replicas", 2.5, largeBlocks, byUsage, 2, 0, 0, 0},
		{"blocks of 128, by page, two replicas", 6, largeBlocks, byPage, 2, restarted, 0, 0},
		{"hybrid, by usage", 4.4, hybrid, byUsage, 1, 0, 0, 0},
		{"hybrid, by page", 6, hybrid, byPage, 1, restarted, 0, 0},
		{"hybrid, by usage, two replicas", 2.5, hybrid, byUsage, 2, restarted, 0, 0},
		{"hybrid, by page, two replicas", 4.4, hybrid, byPage, 2, 0, 0.09, 0},
		{"off, by usage and page", 2.5, noCache, byBoth, 1, restarted, 0, 0},
		{"off, by page", 6, noCache, byPage, 1, 0, 0, 0},
		{"off, by usage and page, two replicas", 6, noCache, byBoth, 2, 0, 0, 0},
		{"off, by page, two replicas", 2.5, noCache, byPage, 2, restarted, 0, 0},
	} {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			k.assertExpected(t)
		})
	}
}
