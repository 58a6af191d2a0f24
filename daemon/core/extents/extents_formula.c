/* extents_formula.c - lengths that integer parameters can express.
 *
 * A formula is an integer, or the product of two, times an element size. If the distance
 * from a pointer to a possible end equals a formula's length, the formula is confirmed
 * for that argument. Formulas that many shapes confirm form the argument's template. The
 * shortest of nearly equally supported multiples is chosen. The reason: two adjacent
 * tensors of one size also confirm the double length, but rarely does anything confirm
 * half a length.
 */
#include <string.h>

#include "extents_state.h"

/* Bound of all lengths: units of longer ones would overflow 32 bits [derived]. */
#define LARGEST_BYTES (1ull << 41)
/* Weights of a choice, in thousandths: of a vote, of a formula's support over all shapes,
 * and of a product (a single integer has 1000) [guessed]. */
#define VOTE_WEIGHT 1000u
#define TEMPLATE_WEIGHT 2000u
#define PRODUCT_WEIGHT 900u
/* Part of the best support, in thousandths, that a shorter divisor needs
 * [measured: extents.md]. */
#define NEARLY 600u
/* What a formula needs without votes: a part of the shapes, in thousandths, and a number of
 * shapes [guessed]. */
#define BELIEVED 500u
#define SHAPES_LEAST 2

uint32_t extents_units(uint64_t bytes) {
  if (bytes > LARGEST_BYTES) return 0;
  return (uint32_t)((bytes + EXTENTS_UNIT_BYTES - 1) / EXTENTS_UNIT_BYTES);
}

static uint32_t value_at(const struct extents_shape *shape, uint16_t where) {
  uint32_t low = 0;
  uint32_t high = shape->count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (shape->integers[middle].where < where)
      low = middle + 1;
    else
      high = middle;
  }
  return low < shape->count && shape->integers[low].where == where
             ? shape->integers[low].value
             : 0;
}

/* Returns the length in units that a formula gives; 0: none. */
static uint32_t formula_units(const struct extents_formula *formula,
                              const struct extents_shape *shape, uint64_t elements) {
  uint64_t value = elements;
  if (formula->first != EXTENTS_NOWHERE) {
    if (shape == NULL) return 0;
    value = value_at(shape, formula->first);
    if (formula->second != EXTENTS_NOWHERE) value *= value_at(shape, formula->second);
  }
  if (value == 0 || value > LARGEST_BYTES / 8) return 0;
  return extents_units(value * formula->size);
}

/* --- every length of one shape ---------------------------------------------- */

static uint32_t spelled_slot(uint32_t units) {
  return (units * 2654435769u) >> 20 & (EXTENTS_SPELLED - 1);
}

static void spell(struct pump_extents *learner, uint64_t product, uint16_t first,
                  uint16_t second, uint32_t size) {
  if (product > LARGEST_BYTES / 8) return;
  uint32_t units = extents_units(product * size);
  uint32_t slot = spelled_slot(units);
  while (learner->spelled[slot].turn == learner->turn) slot = (slot + 1) % EXTENTS_SPELLED;
  learner->spelled_slots[learner->spelled_count++] = (uint16_t)slot;
  learner->spelled[slot] = (struct extents_spelled){
      .turn = learner->turn,
      .units = units,
      .formula = {.first = first, .second = second, .size = size},
  };
}

/* Lists all formulas of `shape`: at most 24 * 4 + 300 * 3, the simple ones first. */
static void spell_all(struct pump_extents *learner, const struct extents_shape *shape) {
  _Static_assert(EXTENTS_DISTINCT * 4 + EXTENTS_DISTINCT * (EXTENTS_DISTINCT + 1) / 2 * 3 <=
                     EXTENTS_SPELLED / 2,
                 "the table stays half empty");
  if (learner->spelled_shape == shape->key) return;
  learner->spelled_shape = shape->key;
  learner->spelled_count = 0;
  if (++learner->turn == 0) {
    memset(learner->spelled, 0, EXTENTS_SPELLED * sizeof(*learner->spelled));
    learner->turn = 1;
  }
  const struct extents_integer *integers = shape->integers;
  for (uint32_t i = 0; i < shape->count; i++)
    for (uint32_t size = 1; integers[i].first && size <= 8; size *= 2)
      spell(learner, integers[i].value, integers[i].where, EXTENTS_NOWHERE, size);
  for (uint32_t i = 0; i < shape->count; i++) {
    if (!integers[i].first) continue;
    for (uint32_t j = i; j < shape->count; j++) {
      if (!integers[j].first) continue;
      uint64_t product = (uint64_t)integers[i].value * integers[j].value;
      for (uint32_t size = 1; size <= 4; size *= 2)
        spell(learner, product, integers[i].where, integers[j].where, size);
    }
  }
}

static uint32_t shape_bit(uint64_t shape_key) {
  return 1u << (shape_key >> 7 & 31);
}

static void support(struct extents_template *template,
                    const struct extents_formula *formula, uint32_t bit) {
  struct extents_formula *weakest = NULL;
  for (uint32_t i = 0; i < EXTENTS_FORMULAS; i++) {
    struct extents_formula *known = &template->formulas[i];
    if (known->size == formula->size && known->first == formula->first &&
        known->second == formula->second) {
      known->shapes |= bit;
      return;
    }
    if (weakest == NULL || (weakest->size != 0 &&
                            (known->size == 0 || __builtin_popcount(known->shapes) <
                                                     __builtin_popcount(weakest->shapes))))
      weakest = known;
  }
  /* Keep a formula that more than a quarter of the shapes confirm. */
  if (weakest->size != 0 &&
      __builtin_popcount(weakest->shapes) * 4 > __builtin_popcount(template->shapes))
    return;
  *weakest = *formula;
  weakest->shapes = bit;
}

bool extents_confirm(struct pump_extents *learner, const struct extents_shape *shape,
                     uint32_t units, struct extents_template *template) {
  spell_all(learner, shape);
  uint32_t bit = shape_bit(shape->key);
  bool any = false;
  for (uint32_t slot = spelled_slot(units); learner->spelled[slot].turn == learner->turn;
       slot = (slot + 1) % EXTENTS_SPELLED) {
    if (learner->spelled[slot].units != units) continue;
    support(template, &learner->spelled[slot].formula, bit);
    any = true;
  }
  if (any) template->shapes |= bit;
  return any;
}

bool extents_confirm_count(uint64_t elements, uint32_t units, uint64_t shape_key,
                           struct extents_template *template) {
  bool any = false;
  for (uint32_t size = 1; size <= 8; size *= 2) {
    struct extents_formula formula = {
        .first = EXTENTS_NOWHERE, .second = EXTENTS_NOWHERE, .size = size};
    if (formula_units(&formula, NULL, elements) != units) continue;
    support(template, &formula, shape_bit(shape_key));
    any = true;
  }
  if (any) template->shapes |= shape_bit(shape_key);
  return any;
}

uint32_t extents_largest(struct pump_extents *learner, const struct extents_shape *shape,
                         uint32_t units) {
  spell_all(learner, shape);
  uint32_t largest = 0;
  for (uint32_t i = 0; i < learner->spelled_count; i++) {
    uint32_t spelled = learner->spelled[learner->spelled_slots[i]].units;
    if (spelled <= units && spelled > largest) largest = spelled;
  }
  return largest;
}

/* --- choosing ---------------------------------------------------------------- */

struct option {
  uint32_t units;
  uint32_t support;
  uint32_t template_part; /* part of the shapes, in thousandths */
  uint32_t voted;
};

static struct option *option_of(struct option *options, uint32_t *count, uint32_t units) {
  for (uint32_t i = 0; i < *count; i++)
    if (options[i].units == units) return &options[i];
  options[*count] = (struct option){.units = units};
  return &options[(*count)++];
}

uint32_t extents_choose(const struct extents_vote *vote,
                        const struct extents_template *template,
                        const struct extents_shape *shape, uint64_t elements,
                        uint32_t end_units) {
  struct option options[EXTENTS_VOTES + EXTENTS_FORMULAS];
  uint32_t count = 0;
  uint32_t votes_most = 1;
  for (uint32_t i = 0; i < EXTENTS_VOTES; i++)
    if (vote->votes[i] > votes_most && vote->units[i] <= end_units)
      votes_most = vote->votes[i];
  for (uint32_t i = 0; i < EXTENTS_VOTES; i++) {
    if (vote->votes[i] == 0 || vote->units[i] > end_units) continue;
    struct option *option = option_of(options, &count, vote->units[i]);
    option->voted = 1;
    option->support = VOTE_WEIGHT * vote->votes[i] / votes_most;
  }
  uint32_t shapes = (uint32_t)__builtin_popcount(template->shapes);
  for (uint32_t i = 0; i < EXTENTS_FORMULAS && shapes != 0; i++) {
    const struct extents_formula *formula = &template->formulas[i];
    uint32_t confirmed = (uint32_t)__builtin_popcount(formula->shapes);
    if (formula->size == 0 || confirmed < SHAPES_LEAST) continue;
    uint32_t units = formula_units(formula, shape, elements);
    if (units == 0 || units > end_units) continue;
    uint32_t simple = formula->second == EXTENTS_NOWHERE ? 1000 : PRODUCT_WEIGHT;
    uint32_t part = simple * confirmed / shapes;
    struct option *option = option_of(options, &count, units);
    if (part > option->template_part) option->template_part = part;
  }
  struct option *best = NULL;
  for (uint32_t i = 0; i < count; i++) {
    struct option *option = &options[i];
    option->support += TEMPLATE_WEIGHT * option->template_part / 1000;
    if (best == NULL || option->support > best->support ||
        (option->support == best->support && option->units < best->units))
      best = option;
  }
  if (best == NULL) return 0;
  const struct option *chosen = best;
  for (uint32_t i = 0; i < count; i++)
    if (options[i].units < chosen->units && best->units % options[i].units == 0 &&
        options[i].support * 1000 >= NEARLY * best->support)
      chosen = &options[i];
  return chosen->voted || chosen->template_part >= BELIEVED ? chosen->units : 0;
}
