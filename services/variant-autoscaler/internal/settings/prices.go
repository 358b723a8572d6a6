package settings

import "fairlead.dev/pkg/strictyaml"

// maxPrice is the highest price of a card: 10^6 cents per hour, 10,000 dollars. Real cards cost hundreds of cents. Ten thousand of the
// dearest cards still fit into the numbers of the optimizer.
const maxPrice = 1e12

// unitCost is an entry of accelerator-unit-costs. Cost is in cents per hour and card.
type unitCost struct {
	Device strictyaml.Scalar `yaml:"device"`
	Cost   strictyaml.Scalar `yaml:"cost"`
}

// parsePrices returns the prices of accelerators, in millionths of a cent per hour and card.
func parsePrices(data map[string]string, w *warnings) map[string]int64 {
	prices := make(map[string]int64, len(data))
	for _, key := range sortedKeys(data) {
		entry, valid := decodeEntry(key, data[key], unitCost{}, w)
		if !valid {
			continue
		}
		price, err := ParseAmount(string(entry.Cost))
		switch {
		case err != nil:
			w.addWarning(ReasonInvalid, key, `ignored: the cost %s: set it in cents per hour and card, for example {"device":"NVIDIA-A100-PCIE-80GB","cost":"40.00"}`, err)
		case price > maxPrice:
			w.addWarning(ReasonInvalid, key, "ignored: the cost %q is more than 1000000 cents per hour and card: set a lower cost",
				quoteText(string(entry.Cost)))
		default:
			prices[key] = price
		}
	}
	return prices
}
